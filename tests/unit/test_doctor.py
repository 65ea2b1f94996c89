"""Doctor runs the checks that a store gives, in their order, and none of them hides another."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from outbox_core import stores
from outbox_core.doctor import Finding, Severity, diagnose
from outbox_core.errors import StorageError
from outbox_core.store_checks import Check, CheckOptions, Unreachable, Unusable
from outbox_core.table import TableName

pytestmark = pytest.mark.asyncio
URL = "fake://db/shop"


def well(name: str) -> Check:
    async def run() -> list[Finding]:
        return [Finding(name, Severity.OK, "well")]

    return Check(name, run)


def fails(name: str, error: Exception, *, decisive: bool = False) -> Check:
    async def run() -> list[Finding]:
        raise error

    return Check(name, run, decisive)


class Backend:
    """A store of which only the checks are asked for."""

    def __init__(self, server: Sequence[Check], table: Sequence[Check]) -> None:
        self.server = server
        self._table = table
        self.asked: list[str] = []
        self.options: CheckOptions | None = None

    def table(self, table: TableName) -> Sequence[Check]:
        return self._table

    async def topics(self, table: TableName) -> list[str]:
        self.asked.append(str(table))
        return []

    @asynccontextmanager
    async def checks(self, options: CheckOptions, connect: Any = None) -> AsyncGenerator[Backend]:
        self.options = options
        yield self


async def examine(
    monkeypatch: pytest.MonkeyPatch, backend: object, *, tables: Sequence[str] = ("orders_outbox",)
) -> list[tuple[str, str, str]]:
    monkeypatch.setattr(stores, "flaw", lambda _: None)
    monkeypatch.setattr(stores, "for_url", lambda _: backend)
    findings = await diagnose({}, database_url=URL, tables=tables, timeout=0.05)
    return [(each.check, each.severity.value, each.title) for each in findings if each.check != "settings"]


async def test_checks_run_in_the_order_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend([well("first"), well("second")], [well("third"), well("fourth")])
    found = await examine(monkeypatch, backend, tables=["a_outbox", "b_outbox"])
    assert [name for name, _, _ in found] == ["first", "second", *["third", "fourth"] * 2]
    assert backend.asked == ["public.a_outbox", "public.b_outbox"]
    assert backend.options is not None
    assert backend.options.timeout == 0.05


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StorageError("this role may not read what it needs"), "this role may not read what it needs"),
        (TimeoutError(), "no answer within 0.05 s"),
        (ConnectionResetError(), "ConnectionResetError"),
        (RuntimeError("CANARY"), "unexpected RuntimeError"),
    ],
)
async def test_a_check_that_fails_is_a_finding_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    backend = Backend([fails("first", error), well("second")], [fails("third", error), well("fourth")])
    found = await examine(monkeypatch, backend)
    failed = f"could not be looked at: {reason}"
    assert found == [
        ("first", "warning", failed),
        ("second", "ok", "well"),
        ("third", "warning", failed),
        ("fourth", "ok", "well"),
    ]


async def test_a_check_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever() -> list[Finding]:
        await anyio.sleep_forever()
        raise AssertionError

    found = await examine(monkeypatch, Backend([Check("slow", forever), well("next")], []))
    assert found == [
        ("slow", "warning", "could not be looked at: no answer within 0.05 s"),
        ("next", "ok", "well"),
    ]


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (Unusable([Finding("schema", Severity.ERROR, "no such table")]), "no such table"),
        (StorageError("gone"), "could not be looked at: gone"),
    ],
)
async def test_a_decisive_check_that_does_not_pass_ends_those_of_its_table(
    monkeypatch: pytest.MonkeyPatch, error: Exception, title: str
) -> None:
    backend = Backend([], [fails("schema", error, decisive=True), well("leader")])
    found = await examine(monkeypatch, backend)
    assert [(name, text) for name, _, text in found] == [("schema", title)]
    assert backend.asked == []


async def test_a_database_that_cannot_be_reached_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        @asynccontextmanager
        async def checks(self, options: CheckOptions, connect: Any = None) -> AsyncGenerator[Backend]:
            raise Unreachable("cannot connect", "start it")
            yield

    assert await examine(monkeypatch, Away()) == [("connection", "error", "cannot connect")]

"""The types of dead letters and the cleaner as users see them, checked by mypy and pyright."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import assert_type

from outbox_core.cleaner import Cleaner, CleanerSettings, Pass
from outbox_core.dead_letters import AuditRecord, DeadLetters, Filter, Group, Outcome, Page, Plan
from outbox_core.record import StoredMessage
from outbox_core.stores.postgres.admin_store import PostgresAdminStore


async def looking(letters: DeadLetters) -> None:
    assert_type(await letters.count(), int)
    page = assert_type(await letters.list(Filter(topic="shop.**")), Page)
    assert_type(page.messages, Sequence[StoredMessage])
    assert_type(await letters.group("code"), Sequence[Group])
    assert_type(await letters.show(page.messages[0].event_id), StoredMessage | None)


async def changing(letters: DeadLetters) -> None:
    plan = assert_type(await letters.plan(Filter(everything=True), published=True), Plan)
    assert_type(plan.topics, Mapping[str, int])
    assert_type(plan.oldest, datetime | None)
    outcome = assert_type(await letters.replay(plan, actor="ada", reason="mended", rate=10), Outcome)
    assert_type(outcome.record, AuditRecord)
    assert_type(await letters.discard(plan, actor="ada", reason="mended"), Outcome)
    assert_type(await letters.history(unfinished=True), Sequence[AuditRecord])


async def cleaning(dsn: str) -> None:
    async with PostgresAdminStore.connect(dsn, "orders_outbox") as store:
        assert_type(store, PostgresAdminStore)
        assert_type(await Cleaner(store, "orders_outbox", CleanerSettings()).clean(), Pass)


def test_settings() -> None:
    assert_type(CleanerSettings().dead_retention, float | None)
    assert CleanerSettings().retention == 604800

"""Destinations by topic: found once for each, and remembered within bounds."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from outbox_core.dispatcher import Dispatcher
from outbox_core.meta import DispatchedMessage
from outbox_core.relay.backoff import Backoff
from outbox_core.relay.leaves import MOST_TOPICS, Leaves


class Nobody:
    async def dispatch(self, message: DispatchedMessage, /) -> None:
        pass


class Parity:
    """A router by the last letter."""

    def __init__(self) -> None:
        self.even, self.odd, self.asked = Nobody(), Nobody(), 0

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        pass

    def route(self, topic: str) -> Dispatcher:
        self.asked += 1
        return self.odd if int(topic[-1]) % 2 else self.even


def test_a_topic_is_routed_once_and_topics_without_end_are_forgotten() -> None:
    router = Parity()
    leaves = Leaves(router, Backoff(1.0, 60.0, 0.0, lambda: 0.0), 30.0)
    assert leaves.of("a.1") is leaves.of("a.1")
    assert router.asked == 1
    for number in range(3 * MOST_TOPICS):
        assert leaves.of(f"orders.{number}").dispatcher is (router.odd if number % 2 else router.even)
    known = leaves.of("a.1").topics | leaves.of("a.2").topics
    assert 0 < len(known) <= MOST_TOPICS + 2
    assert leaves.of("orders.1") is leaves.of("a.1")


class Some:
    """All that a destination knows of a row."""

    def __init__(self) -> None:
        self.id = uuid4()


def test_others_are_told_when_nobody_has_to_be_alone_any_more() -> None:
    leaf: Any = Leaves(Nobody(), Backoff(1.0, 60.0, 0.0, lambda: 0.0), 30.0).of("a")
    suspect, before, after = Some(), Some(), Some()
    for _ in range(3):
        leaf.breaker.open(0.0, {suspect.id})
        leaf.breaker.half_open(0.0, answered=True)
        leaf.breaker.acknowledged(0.0)
    told: list[str] = []
    assert leaf.starts(before, 1.0)
    assert not leaf.starts(suspect, 1.0)
    assert not leaf.starts(after, 1.0), "it has to be alone first"
    leaf.when_free(lambda: told.append("free"))
    leaf.let_go([suspect])
    assert told == ["free"]
    assert leaf.starts(after, 1.0)


@pytest.mark.asyncio
async def test_why_probes_fail_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    class Away(Nobody):
        why: BaseException | None = OSError("no route to amqp://user:CANARY@host")

        async def probe(self) -> None:
            if self.why is not None:
                raise self.why

    away = Away()
    leaf = Leaves(away, Backoff(1.0, 60.0, 0.0, lambda: 0.0), 30.0).of("a")

    async def said(why: BaseException | None) -> list[str]:
        caplog.clear()
        away.why = why
        assert [await leaf.probe(1.0) for _ in range(3)] == [why is None] * 3
        return [record.message for record in caplog.records if record.levelname == "WARNING"]

    refused = OSError("no route to amqp://user:CANARY@host")
    text = "the probe of Away failed: UNKNOWN.OSERROR OSError: no route to amqp://***@host"
    leaf.open(0.0, frozenset())
    assert await said(refused) == [text]
    assert await said(refused) == []
    assert len(await said(ValueError("no such user"))) == 1
    assert len(await said(asyncio.CancelledError())) == 1
    assert await said(None) == []
    leaf.acknowledged(1.0)
    leaf.open(2.0, frozenset())
    assert await said(refused) == [text], "it is another outage"

"""Keys that wait: whatever comes late is still before what follows it, and however many wait, the others go on."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import asyncpg
import pytest

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed
from tests.integration.relay.bench import TOPIC, Bench
from tests.kit.gates import Gate, ignore
from tests.kit.tuning import constant, tune
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


async def test_what_was_written_first_and_committed_late_is_not_overtaken_while_a_later_one_is_in_hand(
    bench: Bench,
) -> None:
    """``first`` has the lowest sequence of its key, is not due, and committed while ``second`` is being dispatched."""
    arrived: list[object] = []
    gate = Gate()

    async def deliver(message: DispatchedMessage) -> None:
        arrived.append(message.json())
        if message.json() == "second":
            await gate.dispatch(message)

    late = await asyncpg.connect(bench.writers)
    try:
        async with bench.relay(deliver, dispatch_timeout=10.0, lock_ttl=60.0):
            transaction = late.transaction()
            await transaction.start()
            await bench.outbox.enqueue(late, Message(TOPIC, "first", key="k", delay=timedelta(seconds=2)))
            await bench.enqueue("second", key="k")
            await until(lambda: gate.inside == 1)
            await transaction.commit()
            await bench.enqueue("third", key="k")
            await bench.enqueue("of another")
            await until(lambda: "of another" in arrived)
            gate.opened.set()
            await until(lambda: "third" in arrived)
    finally:
        await late.close()
    assert [name for name in arrived if name != "of another"] == ["second", "first", "third"]


async def test_more_keys_wait_than_a_claim_can_be_told_and_the_others_go_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert constant("max_held_keys_in_claim") > 50
    tune(monkeypatch, max_held_keys_in_claim=50)
    waiting = [Message(TOPIC, "first", key=f"k{n}", delay=timedelta(hours=1)) for n in range(1500)]
    behind = [Message(TOPIC, "second", key=f"k{n}") for n in range(1500)]
    async with bench.connection.transaction():
        await bench.outbox.enqueue_many(bench.connection, waiting + behind)
    arrived = asyncio.Event()

    async def deliver(message: DispatchedMessage) -> None:
        assert message.json() == "of nobody"
        arrived.set()

    async with bench.relay(deliver, batch_size=10):
        await until(lambda: sum(claimed.rows for claimed in bench.heard.of(Claimed)) >= 1500)
        for _ in range(3):
            arrived.clear()
            await bench.enqueue("of nobody")
            async with asyncio.timeout(5.0):
                await arrived.wait()


async def test_a_first_message_that_somebody_has_locked_is_not_asked_for_without_a_pause(
    bench: Bench,
) -> None:
    await bench.enqueue(*range(20), key="k")
    other = await asyncpg.connect(bench.writers)
    try:
        transaction = other.transaction()
        await transaction.start()
        await other.fetch("SELECT FROM shop.orders_outbox ORDER BY sequence LIMIT 1 FOR UPDATE")
        async with bench.relay(ignore):
            began = time.monotonic()
            await until(lambda: len(bench.heard.of(Claimed)) >= 20)
            took = time.monotonic() - began
            await transaction.rollback()
            assert await bench.settled() == {"published": 20}
    finally:
        await other.close()
    assert took > 0.6

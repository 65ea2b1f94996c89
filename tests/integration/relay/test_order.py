"""Order within a key, and nothing held up outside of it."""

from __future__ import annotations

import signal
import time
from uuid import UUID

import asyncpg
import pytest

from outbox_core.message import Message
from outbox_core.outbox import Outbox
from tests.integration.relay.broker import Broker
from tests.integration.relay.trial import TABLE, Trial
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import quiet_for, until

pytestmark = pytest.mark.asyncio


def first_times(delivered: list[int]) -> list[int]:
    return list(dict.fromkeys(delivered))


async def test_messages_of_a_key_arrive_one_after_the_other(trial: Trial) -> None:
    sequences: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for _ in range(5):
        for key, known in sequences.items():
            known += await trial.enqueue(3, key=key)
    async with trial.running(batch_size=7):
        await trial.until_published(45)
    for key, known in sequences.items():
        assert trial.journal.delivered(key=key) == known
    began: dict[str, int] = {}
    for line in trial.journal.read():
        if line["kind"] == "dispatch":
            assert line["key"] not in began, "two messages of one key were with the broker at once"
            began[line["key"]] = line["sequence"]
        elif line["kind"] == "ack":
            assert began.pop(line["key"]) == line["sequence"]


async def test_a_failing_head_holds_its_key_and_nobody_else(trial: Trial) -> None:
    broker = Broker(trial.journal)
    broker.refuses.add("head")
    [head] = await trial.enqueue(1, key="k", payload="head")
    followers = await trial.enqueue(4, key="k")
    [other_tenant] = await _enqueue_for(trial, UUID(int=7), key="k")
    others = await trial.enqueue(3, key="other") + await trial.enqueue(3)
    async with trial.running(broker=broker, backoff_base=0.3, max_attempts=50):
        await until(lambda: len(trial.journal.read("dispatch", sequence=head)) >= 3, 8.0, "three attempts")
        assert set(trial.journal.delivered()) == {*others, other_tenant}
        # They may be leased for a moment: the relay's clock can be ahead of what the database says is due.
        await trial.until_rows("attempts = 0", len(followers), 2.0)
        broker.refuses.clear()
        await trial.until_published(12)
    assert [s for s in trial.journal.delivered(key="k") if s != other_tenant] == [head, *followers]
    rows = await trial.rows()
    assert [rows[sequence]["attempts"] for sequence in followers] == [1, 1, 1, 1]


async def _enqueue_for(trial: Trial, tenant: UUID, key: str) -> list[int]:
    async with trial.admin.transaction():
        return await Outbox(TABLE).enqueue_many(trial.admin, [Message("ok", None, tenant_id=tenant, key=key)])


async def test_a_delayed_head_holds_its_key(trial: Trial) -> None:
    [head] = await trial.enqueue(1, key="k", delay=2.0)
    followers = await trial.enqueue(3, key="k")
    keyless = await trial.enqueue(3)
    async with trial.running():
        await trial.until_published(3, 2.0)
        assert sorted(trial.journal.delivered()) == keyless
        await trial.until_published(7, 6.0)
    assert trial.journal.delivered(key="k") == [head, *followers]
    assert all(row["attempts"] == 1 for row in (await trial.rows()).values())


@pytest.mark.parametrize("on_dead", ["skip", "block"])
async def test_what_follows_a_dead_message(trial: Trial, on_dead: str) -> None:
    [head] = await trial.enqueue(1, "permanent", key="k")
    followers = await trial.enqueue(3, key="k")
    async with trial.running(on_dead=on_dead):
        await until(lambda: len(trial.journal.events("Dead")) == 1, 5.0, "the death")
        later = await trial.enqueue(2, key="k")
        keyless = await trial.enqueue(2)
        if on_dead == "skip":
            await trial.until_published(7)
            assert trial.journal.delivered(key="k") == [*followers, *later]
            return
        await trial.until_published(2)
        await quiet_for(
            4 * QUICK_TAKEOVER["poll_interval"], lambda: bool(trial.journal.delivered(key="k")), "a delivery"
        )
        assert sorted(trial.journal.delivered()) == keyless
        rows = await trial.rows()
        assert [rows[sequence]["attempts"] for sequence in followers + later] == [0] * 5
        await trial.admin.execute("DELETE FROM orders_outbox WHERE sequence = $1", head)
        await trial.until_published(7, 9.0)
    assert trial.journal.delivered(key="k") == [*followers, *later]


async def test_a_dead_head_blocks_its_key_for_the_next_leader_too(trial: Trial) -> None:
    await trial.enqueue(1, "permanent", key="k")
    await trial.enqueue(2, key="k")
    async with trial.running(on_dead="block"):
        await until(lambda: len(trial.journal.events("Dead")) == 1, 5.0, "the death")
    keyless = await trial.enqueue(1)
    async with trial.running(on_dead="block"):
        await trial.until_published(1)
        await quiet_for(
            3 * QUICK_TAKEOVER["poll_interval"], lambda: bool(trial.journal.delivered(key="k")), "a delivery"
        )
    assert trial.journal.delivered() == keyless


async def test_a_replayed_message_does_not_hold_its_key(trial: Trial) -> None:
    broker = Broker(trial.journal)
    broker.refuses.add("head")
    [head] = await trial.enqueue(1, key="k", payload="head")
    followers = await trial.enqueue(3, key="k")
    await trial.admin.execute("UPDATE orders_outbox SET replays = 1 WHERE sequence = $1", head)
    async with trial.running(broker=broker, backoff_base=5.0, backoff_cap=5.0):
        await trial.until_published(3, 4.0)
        assert trial.journal.delivered() == followers
        later = await trial.enqueue(2, key="k")
        await trial.until_published(5, 4.0)
    assert trial.journal.delivered() == [*followers, *later]


async def test_a_replayed_message_that_waits_does_not_keep_a_failed_one_behind_it(trial: Trial) -> None:
    [head] = await trial.enqueue(1, key="k", delay=3600.0)
    [hesitant] = await trial.enqueue(1, "hesitant", key="k")
    [last] = await trial.enqueue(1, key="k")
    await trial.admin.execute("UPDATE orders_outbox SET replays = 1 WHERE sequence = $1", head)
    async with trial.running():
        await trial.until_published(2, 8.0)
    assert trial.journal.delivered() == [hesitant, last]


async def test_a_new_leader_waits_for_the_leases_of_a_key(trial: Trial) -> None:
    """The old leader may still be at it: its successor dispatches nothing of the key before the lease ends."""
    sequences = await trial.enqueue(3, key="k")
    async with trial.child("dispatch.before", act=signal.SIGSTOP) as frozen:
        await frozen.until_seen("fault")
        leased_at = time.monotonic()
        later = await trial.enqueue(2, key="k")
        keyless = await trial.enqueue(2)
        async with trial.running():
            await until(lambda: len(trial.journal.delivered()) == 2, 5.0, "the keyless messages")
            assert sorted(trial.journal.delivered()) == keyless
            taken_over = time.monotonic()
            await trial.until_published(7, 8.0)
    assert taken_over - leased_at < QUICK_TAKEOVER["lock_ttl"]
    assert trial.journal.delivered(key="k") == [*sequences, *later]
    first = trial.journal.read("dispatch", key="k")[0]
    assert first["at"] - leased_at > QUICK_TAKEOVER["lock_ttl"] - 0.5
    rows = await trial.rows()
    assert [rows[sequence]["attempts"] for sequence in later] == [1, 1]


async def test_order_survives_a_relay_that_is_killed_in_the_middle(trial: Trial) -> None:
    sequences = await trial.enqueue(30, "ok", key="k")
    async with trial.child("dispatch.acknowledged", nth=15, batch_size=10) as child:
        assert await child.ended() == -signal.SIGKILL
    async with trial.running(batch_size=10):
        await trial.until_published(30, 12.0)
    delivered = trial.journal.delivered()
    assert first_times(delivered) == sequences
    assert len(delivered) > len(sequences)


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_a_message_that_commits_late_is_delivered_at_once(trial: Trial, busy: bool) -> None:
    """It has an older stamp and a lower sequence than what was delivered while its transaction was open."""
    other = await asyncpg.connect(trial.direct, timeout=5, command_timeout=10)
    try:
        async with trial.running(poll_interval=2.0):
            transaction = other.transaction()
            await transaction.start()
            late = await Outbox(TABLE).enqueue(other, Message("ok", None))

            def early() -> bool:
                return late in trial.journal.delivered()

            count = 0
            for _ in range(6):
                await trial.enqueue(2)
                count += 2
                await trial.until_published(count)
                await quiet_for(0.2, early)
            if not busy:
                await quiet_for(2.5, early)
            await trial.enqueue(1)
            await trial.until_published(count + 1)
            await quiet_for(0.1, early)
            committed = time.monotonic()
            await transaction.commit()
            await until(lambda: late in trial.journal.delivered(), 4.0, "the late message")
            assert time.monotonic() - committed < 1.0
    finally:
        other.terminate()


async def test_a_key_that_waited_goes_on_when_its_message_is_through_and_not_at_the_next_look(
    trial: Trial,
) -> None:
    """Also with a destination so slow that nobody expects more work when it answers."""
    broker = Broker(trial.journal)
    broker.refuses.add("first")
    await trial.enqueue(1, "slow", key="k", payload="first")
    await trial.enqueue(5, "slow", key="k")
    slow = {"poll_interval": 30.0, "dispatch_timeout": 2.0, "lock_ttl": 6.0}
    async with trial.running(broker=broker, **slow):
        await until(lambda: bool(trial.journal.events("Failed")), 5.0, "the failure")
        broker.refuses.clear()
        await trial.until_published(6, 15.0)

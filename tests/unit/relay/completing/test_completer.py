"""The completer: one write a step, what each step reports, and what becomes of a batch that cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from outbox_core.errors import StorageError, StorageTimeout, StorageUnavailable
from outbox_core.observer import Dead, Failed, LeaseLost, Published, Reconnecting, Released
from outbox_core.relay.completing.completer import Completer
from outbox_core.relay.completing.deferred import LOCK_CHECK_SECONDS
from outbox_core.relay.completing.verdict_batch import Verdict, Written
from outbox_core.relay.in_flight import Stage
from outbox_core.relay.shared import Observers
from outbox_core.runtime.backoff import Backoff
from outbox_core.store import Failure, Lease
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName
from tests.kit.deliveries import Delivery, delivery, shared
from tests.kit.memory import TABLE
from tests.kit.observing import Heard
from tests.kit.tuning import stop_clock

pytestmark = pytest.mark.asyncio


class Writes(MemoryStore):
    """A store that keeps the writes it got, and fails them as said, one after another."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)
        self.writes: list[tuple[str, list[UUID]]] = []
        self.lost: set[Lease] = set()
        self.locked_ids: set[UUID] = set()
        self.answers = True

    def _write(self, kind: str, ids: list[UUID]) -> set[Lease]:
        self.writes.append((kind, ids))
        if self.errors:
            raise self.errors.pop(0)
        return self.lost

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        return self._write("publish", [row_id for row_id, _ in leases])

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        return self._write("fail", [failure.id for failure in failures])

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        return self._write("release", [row_id for row_id, _ in leases])

    async def locked_rows(self, table: TableName, ids: Sequence[UUID]) -> set[UUID]:
        if not self.answers:
            raise StorageUnavailable("no answer")
        return self.locked_ids.intersection(ids)


def completer_on(store: Writes) -> tuple[Completer, Heard]:
    heard = Heard()
    parts = replace(
        shared(store), observers=Observers((heard,)), backoff=Backoff(0.001, 0.001, 0.0, lambda: 0.0)
    )
    return Completer(TABLE, parts), heard


async def step(completer: Completer) -> Written:
    async with asyncio.timeout(5.0):
        written = await completer.step()
    assert written is not None
    return written


def failed(row: Delivery, *, dead: bool = False) -> Verdict:
    return Verdict(row, "UNKNOWN.X no", delay=1.0, refund=False, dead=dead, seconds=0.1)


async def test_each_step_makes_one_write_and_reports_its_rows() -> None:
    store = Writes()
    completer, heard = completer_on(store)
    first, second, third, fourth, fifth = rows = [delivery(number) for number in range(1, 6)]
    completer.release([fifth], "the relay stopped")
    completer.fail(failed(third))
    completer.fail(failed(fourth, dead=True))
    completer.publish(first, 0.1)
    completer.publish(second, 0.1)
    steps = [await step(completer) for _ in range(3)]
    assert steps == [
        Written(rows=[first, second]),
        Written(rows=[third, fourth]),
        Written(rows=[fifth], released=[fifth]),
    ]
    ids = [row.id for row in rows]
    assert store.writes == [("publish", ids[:2]), ("fail", ids[2:4]), ("release", ids[4:])]
    assert [len(heard.of(kind)) for kind in (Published, Failed, Dead, Released)] == [1, 1, 1, 1]


async def test_a_step_waits_for_a_verdict_and_there_are_no_more_steps_once_it_is_closed_and_empty() -> None:
    completer, _ = completer_on(Writes())
    stepping = asyncio.create_task(completer.step())
    await asyncio.sleep(0)
    assert not stepping.done()
    row = delivery()
    completer.publish(row, 0.1)
    assert await stepping == Written(rows=[row])
    completer.publish(last := delivery(), 0.1)
    completer.close()
    seen: list[Delivery] = []
    async with asyncio.timeout(5.0):
        while (written := await completer.step()) is not None:
            seen.extend(written.rows)
    assert seen == [last]


async def test_verdicts_that_come_during_a_write_are_written_together_after_it() -> None:
    store = Writes()
    completer, _ = completer_on(store)
    completer.publish(first := delivery(), 0.1)
    await step(completer)
    later = [delivery() for _ in range(3)]
    for row in later:
        completer.publish(row, 0.1)
    written: list[Delivery] = []
    while not written:
        written.extend((await step(completer)).rows)
    assert written == later
    assert store.writes == [("publish", [first.id]), ("publish", [row.id for row in later])]


async def test_a_step_that_dies_drops_its_batch_and_the_next_goes_on_without_it() -> None:
    store = Writes(ZeroDivisionError("a bug"))
    completer, _ = completer_on(store)
    completer.publish(lost := delivery(), 0.1)
    with pytest.raises(ZeroDivisionError):
        await step(completer)
    completer.publish(kept := delivery(), 0.1)
    written: list[Delivery] = []
    while not written:
        written.extend((await step(completer)).rows)
    assert written == [kept]
    assert store.writes == [("publish", [lost.id]), ("publish", [kept.id])]


async def test_a_batch_that_the_database_does_not_take_is_tried_again() -> None:
    store = Writes(StorageUnavailable("no answer"), StorageUnavailable("no answer"))
    store.answers = False
    completer, heard = completer_on(store)
    completer.publish(row := delivery(), 0.1)
    assert [await step(completer) for _ in range(3)] == [Written(), Written(), Written(rows=[row])]
    assert len(heard.of(Reconnecting)) == 2
    assert completer.refusals == 0, "an outage passes by itself"


async def test_a_row_that_the_database_refuses_is_abandoned_and_holds_up_no_other() -> None:
    refusal = StorageError("a trigger says no")
    store = Writes(refusal, refusal)
    completer, _ = completer_on(store)
    refused, taken = delivery(), delivery()
    completer.publish(refused, 0.1)
    completer.publish(taken, 0.1)
    steps = [await step(completer) for _ in range(3)]
    assert steps == [Written(), Written(rows=[refused], abandoned=[refused]), Written(rows=[taken])]
    assert [ids for _, ids in store.writes] == [[refused.id, taken.id], [refused.id], [taken.id]]


async def test_rows_whose_leases_are_lost_leave_and_are_reported() -> None:
    store = Writes()
    completer, heard = completer_on(store)
    lost, published = delivery(1), delivery(2)
    store.lost = {lost.lease}
    completer.publish(lost, 0.1)
    completer.publish(published, 0.1)
    assert await step(completer) == Written(rows=[lost, published])
    (event,) = heard.of(LeaseLost)
    assert event.message is lost.message.meta
    (recorded,) = heard.of(Published)
    assert recorded.messages == [published.message.meta]


async def test_locked_rows_are_deferred_and_reported_and_written_when_they_are_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = stop_clock(monkeypatch, 1000.0)
    store = Writes(StorageTimeout("not in time"))
    completer, _ = completer_on(store)
    locked, free = delivery(), delivery()
    store.locked_ids = {locked.id}
    completer.publish(locked, 0.1)
    completer.publish(free, 0.1)
    assert await step(completer) == Written(deferred=[locked])
    assert locked.stage is Stage.DEFERRED
    assert await step(completer) == Written(rows=[free])
    store.locked_ids = set()
    time.now += LOCK_CHECK_SECONDS
    assert await step(completer) == Written(rows=[locked], deferred=[])
    assert locked.stage is Stage.COMPLETING
    assert [ids for _, ids in store.writes] == [[locked.id, free.id], [free.id], [locked.id]]


async def test_a_stop_does_not_wait_for_locked_rows() -> None:
    store = Writes(StorageTimeout("not in time"))
    completer, _ = completer_on(store)
    locked = delivery()
    store.locked_ids = {locked.id}
    completer.publish(locked, 0.1)
    assert await step(completer) == Written(deferred=[locked])
    completer.close()
    async with asyncio.timeout(5.0):
        while (written := await completer.step()) is not None:
            assert not written.rows


async def test_batches_that_are_deferred_do_not_lengthen_the_pause_of_a_later_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_clock(monkeypatch)
    locked = [delivery(number) for number in range(8)]
    store = Writes(*(StorageUnavailable("locked") for _ in locked), StorageUnavailable("gone"))
    store.locked_ids = {row.id for row in locked}
    completer, heard = completer_on(store)
    completer._backoff = Backoff(0.001, 60.0, 0.0, lambda: 0.0)
    for row in locked:
        completer.publish(row, 0.1)
        while not (await step(completer)).deferred:
            pass
    completer.publish(delivery(9), 0.1)
    while not heard.of(Reconnecting):
        await step(completer)
    (paused,) = heard.of(Reconnecting)
    assert paused.retry_in == 0.02, "the shortest pause"

"""Leases: their owner may write, and no other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from outbox_core.message import Message
from outbox_core.record import State
from outbox_core.testing.contracts.driving import expect
from outbox_core.testing.contracts.storing.claims import TOPIC
from outbox_core.testing.contracts.storing.scene import NONE, at_work, equal, failure, ids, leases

if TYPE_CHECKING:
    from outbox_core.testing.contracts.storing.database import Database


class LeaseContract:
    """Every write names the lease it is made under, and changes nothing when that lease is over."""

    async def test_publishing_marks_the_row(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one()
            await scene.store.fail(scene.table, [failure(row)])
            (row,) = await scene.claim_when_due()
            lost = await scene.store.publish(scene.table, leases([row]), delete=False)
            equal(lost, NONE, "leases lost")
            stored = await scene.stored(message)
            equal((stored.state, stored.attempts, stored.last_error), (State.PUBLISHED, 2, None), "the row")
            expect(stored.published_at is not None, "published_at is not set")
            again = await scene.store.publish(scene.table, leases([row]), delete=False)
            equal(again, {row.lease}, "leases lost of a second publication")
            equal(await scene.claim(lock_ttl=0.0), [], "rows to claim")

    async def test_publishing_may_delete_the_row(self, database: Database) -> None:
        message, other = Message(TOPIC, 1), Message(TOPIC, 2)
        async with at_work(database) as scene:
            await scene.write(message, other)
            row = await scene.claim_one(limit=1)
            equal(await scene.store.publish(scene.table, leases([row]), delete=True), NONE, "leases lost")
            expect(await scene.is_gone(message), "the row is still there")
            equal((await scene.stored(other)).state, State.PENDING, "the other row")

    async def test_a_wrong_token_changes_nothing(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            good = await scene.claim_one()
            row = replace(good, token=uuid4())
            before = await scene.stored(message)
            for delete in (False, True):
                lost = await scene.store.publish(scene.table, leases([row]), delete=delete)
                equal(lost, {row.lease}, "not published")
            for verdict in (failure(row), failure(row, dead=True), failure(row, refund=True)):
                equal(await scene.store.fail(scene.table, [verdict]), {row.lease}, "not failed")
            for restamp in (False, True):
                lost = await scene.store.release(scene.table, leases([row]), restamp=restamp)
                equal(lost, {row.lease}, "not released")
            equal(await scene.store.undo_claim(scene.table, scene.terms(), ()), 0, "rows undone")
            equal(await scene.stored(message), before, "the row")
            lost = await scene.store.publish(scene.table, [good.lease], delete=False)
            equal(lost, NONE, "leases lost under the good token")

    async def test_the_owner_of_a_void_lease_is_refused_once_another_has_the_row(
        self, database: Database
    ) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            stale = await scene.claim_one()
            (fresh,) = await scene.claim_when_due(lock_ttl=0.02)
            before = await scene.stored(message)
            refused = {stale.lease}
            equal(await scene.store.publish(scene.table, leases([stale]), delete=False), refused, "published")
            equal(await scene.store.fail(scene.table, [failure(stale, dead=True)]), refused, "failed")
            equal(await scene.store.release(scene.table, leases([stale]), restamp=True), refused, "released")
            equal(await scene.stored(message), before, "the row")
            equal(await scene.store.fail(scene.table, [failure(fresh)]), NONE, "lost by its owner")

    async def test_a_batch_applies_what_it_can(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            rows = await scene.claim()
            rows[1] = replace(rows[1], token=uuid4())
            lost = await scene.store.publish(scene.table, leases(rows), delete=False)
            equal(lost, {rows[1].lease}, "leases lost")
            states = [(await scene.stored(message)).state for message in messages]
            equal(states, [State.PUBLISHED, State.IN_FLIGHT, State.PUBLISHED], "states")

    async def test_one_row_under_two_leases_is_written_under_the_one_that_holds(
        self, database: Database
    ) -> None:
        """As when it was leased anew to the relay that still dispatched it."""
        for stale_first in (True, False):
            message = Message(TOPIC, 1)
            async with at_work(database) as scene:
                await scene.write(message)
                stale = await scene.claim_one()
                (fresh,) = await scene.claim_when_due(lock_ttl=0.02)
                both = [stale, fresh] if stale_first else [fresh, stale]
                lost = await scene.store.release(scene.table, leases(both), restamp=False)
                equal(lost, {stale.lease}, "leases lost of a release")
                (stale,) = await scene.claim()
                (fresh,) = await scene.claim_when_due(lock_ttl=0.02)
                both = [stale, fresh] if stale_first else [fresh, stale]
                lost = await scene.store.fail(scene.table, [failure(row) for row in both])
                equal(lost, {stale.lease}, "leases lost of a failure")
                (stale,) = await scene.claim_when_due()
                (fresh,) = await scene.claim_when_due(lock_ttl=0.02)
                both = [stale, fresh] if stale_first else [fresh, stale]
                lost = await scene.store.publish(scene.table, leases(both), delete=stale_first)
                equal(lost, {stale.lease}, "leases lost of a publication")

    async def test_nothing_to_write_is_no_error(self, database: Database) -> None:
        async with at_work(database) as scene:
            equal(await scene.store.publish(scene.table, (), delete=False), NONE, "published")
            equal(await scene.store.publish(scene.table, (), delete=True), NONE, "deleted")
            equal(await scene.store.fail(scene.table, ()), NONE, "failed")
            equal(await scene.store.release(scene.table, (), restamp=True), NONE, "released")

    async def test_a_failure_reschedules_the_row(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one()
            now = (await scene.store.tick(scene.table)).now
            equal(await scene.store.fail(scene.table, [failure(row, delay=0.4)]), NONE, "leases lost")
            stored = await scene.stored(message)
            equal((stored.state, stored.attempts), (State.PENDING, 1), "state and attempts")
            equal(stored.last_error, "PROVIDER.TEST refused", "last_error")
            delay = (stored.available_at - now).total_seconds()
            expect(0.4 <= delay < 5, f"rescheduled by {delay:g} s instead of 0.4 s from now")
            equal(await scene.claim(), [], "rows before their time")
            (again,) = await scene.claim_when_due()
            equal(again.message.meta.attempts, 2, "attempts of the next claim")

    async def test_a_failure_may_refund_the_attempt(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one()
            await scene.store.fail(scene.table, [failure(row, refund=True)])
            equal((await scene.stored(message)).attempts, 0, "attempts")

    async def test_a_failure_may_dead_letter_the_row(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one()
            equal(await scene.store.fail(scene.table, [failure(row, dead=True)]), NONE, "leases lost")
            stored = await scene.stored(message)
            equal((stored.state, stored.attempts), (State.DEAD, 1), "state and attempts")
            expect(stored.dead_at is not None, "dead_at is not set")
            equal(await scene.claim(lock_ttl=0.0), [], "rows to claim")

    async def test_a_release_refunds_the_attempt_and_frees_the_row(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            before = await scene.stored(message)
            row = await scene.claim_one()
            equal(await scene.store.release(scene.table, leases([row]), restamp=False), NONE, "leases lost")
            equal(await scene.stored(message), before, "the row")
            row = await scene.claim_one()
            await scene.store.release(scene.table, leases([row]), restamp=True)
            stored = await scene.stored(message)
            equal(stored.attempts, 0, "attempts")
            expect(stored.available_at > before.available_at, "the row was not stamped anew")
            equal(ids(await scene.claim()), [message.event_id], "rows to claim at once")

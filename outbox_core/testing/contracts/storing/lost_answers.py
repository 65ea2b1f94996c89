"""Lost answers: claims are undone, and verdicts on record found, when a relay did not hear of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from outbox_core.message import Message
from outbox_core.record import State
from outbox_core.store import KeyRequest, Resolution
from outbox_core.testing.contracts.storing.claims import TOPIC
from outbox_core.testing.contracts.storing.scene import NONE, at_work, equal, failure, key_id, leases

if TYPE_CHECKING:
    from outbox_core.testing.contracts.storing.database import Database

_OTHERS = 40
"""Messages that come before those of a key in the order of claims, more than undoing a claim searches."""


class LostAnswerContract:
    """Rows and verdicts of a lost answer are found again, and none of another owner is taken for them."""

    async def test_undoing_a_claim_releases_its_rows_and_no_others(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(5)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            others = await scene.claim(limit=2)
            claim = scene.terms(limit=10)
            rows = (await scene.store.claim(scene.table, claim)).rows()
            await scene.store.publish(scene.table, leases(rows[:1]), delete=False)
            equal(await scene.store.undo_claim(scene.table, claim, ()), 2, "rows released")
            equal(await scene.store.undo_claim(scene.table, claim, ()), 0, "rows released the second time")
            stored = [await scene.stored(message) for message in messages]
            wanted = [(State.IN_FLIGHT, 1)] * 2 + [(State.PUBLISHED, 1)] + [(State.PENDING, 0)] * 2
            equal([(row.state, row.attempts) for row in stored], wanted, "states and attempts")
            lost = await scene.store.publish(scene.table, leases(others), delete=False)
            equal(lost, NONE, "leases lost of the other claim")

    async def test_undoing_finds_its_rows_behind_any_number_that_the_claim_passed_over(
        self, database: Database
    ) -> None:
        held = [Message(TOPIC, n, key="held") for n in range(_OTHERS)]
        blocked = [Message("blocked.topic.v1", n) for n in range(_OTHERS)]
        async with at_work(database) as scene:
            await scene.write(*held, *blocked, Message(TOPIC, 1))
            claim = replace(
                scene.terms(limit=1), held_keys=[key_id("held")], blocked_topics=["blocked.topic.v1"]
            )
            equal((await scene.store.claim(scene.table, claim)).count, 1, "rows claimed")
            equal(await scene.store.undo_claim(scene.table, claim, ()), 1, "rows released")

    async def test_undoing_a_claim_of_keys_finds_its_rows_behind_any_number_of_others(
        self, database: Database
    ) -> None:
        before = [Message(TOPIC, n) for n in range(_OTHERS)]
        messages = [Message(TOPIC, n, key=key) for key in ("a", "b") for n in range(3)]
        async with at_work(database) as scene:
            await scene.write(*before, *messages)
            claim, keys = scene.terms(limit=1), [KeyRequest(key_id("a"), 2), KeyRequest(key_id("b"), 1)]
            rows = (await scene.store.claim_keys(scene.table, claim, keys)).rows()
            equal(len(rows), 3, "rows of the keys")
            other = scene.terms(limit=1)
            (kept,) = (await scene.store.claim_keys(scene.table, other, [KeyRequest(key_id("b"), 2)])).rows()
            equal(await scene.store.undo_claim(scene.table, claim, keys), 3, "rows released")
            equal(await scene.store.undo_claim(scene.table, claim, keys), 0, "rows released the second time")
            stored = [await scene.stored(message) for message in messages]
            wanted = [(State.PENDING, 0)] * 4 + [(State.IN_FLIGHT, 1), (State.PENDING, 0)]
            equal([(row.state, row.attempts) for row in stored], wanted, "states and attempts")
            lost = await scene.store.publish(scene.table, leases([kept]), delete=False)
            equal(lost, NONE, "leases lost of another claim of the same key")

    async def test_a_claim_of_one_row_is_undone_behind_many_that_are_leased(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(40)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            await scene.claim(limit=39)
            claim = scene.terms(limit=1)
            equal((await scene.store.claim(scene.table, claim)).count, 1, "rows claimed")
            equal(await scene.store.undo_claim(scene.table, claim, ()), 1, "rows released")

    async def test_resolutions_name_the_attempt_that_wrote_them(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(5)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            published, dead, pending, deleted, leased = rows = await scene.claim()
            await scene.store.publish(scene.table, leases([published]), delete=False)
            await scene.store.fail(scene.table, [failure(dead, dead=True), failure(pending, delay=60.0)])
            await scene.store.publish(scene.table, leases([deleted]), delete=True)
            ended = await scene.store.resolutions(scene.table, [row.id for row in rows])
            wanted = {
                published.id: Resolution(published=True, attempts=1, replays=0, error=None),
                dead.id: Resolution(published=False, attempts=1, replays=0, error="PROVIDER.TEST refused"),
            }
            equal(ended, wanted, "rows that ended")
            (again,) = await scene.claim_when_due(lock_ttl=0.02)
            equal(again.id, leased.id, "the row whose lease is void")
            await scene.store.publish(scene.table, leases([again]), delete=False)
            ended = await scene.store.resolutions(scene.table, [leased.id])
            equal(ended[leased.id].attempts, 2, "attempts of a row that another lease published")
            equal(await scene.store.resolutions(scene.table, []), {}, "rows when none is asked for")

    async def test_rows_that_no_other_session_locks_are_free(self, database: Database) -> None:
        """A lease is no lock, and asking takes none that would keep the owner from writing."""
        message, other = Message(TOPIC, 1), Message(TOPIC, 2)
        async with at_work(database) as scene:
            await scene.write(message, other)
            row = await scene.claim_one(limit=1)
            before = await scene.stored(message), await scene.stored(other)
            equal(await scene.store.locked_rows(scene.table, [row.id]), NONE, "rows locked")
            equal(
                await scene.store.locked_rows(scene.table, [row.id, database.unknown_id()]),
                NONE,
                "locked, with an unknown",
            )
            equal(
                await scene.store.locked_rows(scene.table, [database.unknown_id()]),
                NONE,
                "unknown ones that are locked",
            )
            equal(await scene.store.locked_rows(scene.table, []), NONE, "locked, when none is asked for")
            equal((await scene.stored(message), await scene.stored(other)), before, "the rows")
            lost = await scene.store.publish(scene.table, leases([row]), delete=False)
            equal(lost, NONE, "leases lost")
            equal(await scene.store.locked_rows(scene.table, [row.id]), NONE, "locked, once published")

    async def test_a_lease_that_ended_without_an_outcome_is_seen_until_there_is_one(
        self, database: Database
    ) -> None:
        message = Message(TOPIC, 1, key="k")
        async with at_work(database) as scene:
            await scene.write(message)
            equal((await scene.claim_one()).recovered, False, "recovered, when claimed first")
            (row,) = await scene.claim_when_due(lock_ttl=0.02)
            equal(row.recovered, True, "recovered, when the lease before is void")
            stored = await scene.stored(message)
            equal(
                stored.last_error, "TX.LEASE the lease before ended without an outcome", "what is on record"
            )
            await scene.store.release(scene.table, leases([row]), restamp=False)
            row = await scene.claim_one()
            equal(row.recovered, True, "recovered, when released")
            await scene.store.fail(scene.table, [failure(row)])
            (row,) = await scene.claim_when_due()
            equal(row.recovered, False, "recovered, when the attempt before had an outcome")
            expired = scene.terms(lock_ttl=0.0)
            (row,) = (await scene.store.claim_keys(scene.table, expired, [KeyRequest(key_id("k"), 1)])).rows()
            equal(row.recovered, True, "recovered, when claimed by its key")

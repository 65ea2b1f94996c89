"""Leadership: one relay leads a table, until its term ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from outbox_core.errors import StorageError
from outbox_core.message import Message
from outbox_core.testing.contracts.driving import expect
from outbox_core.testing.contracts.storing.claims import TOPIC
from outbox_core.testing.contracts.storing.scene import PATIENCE, another, at_work, equal

if TYPE_CHECKING:
    from outbox_core.store import Election
    from outbox_core.testing.contracts.storing.database import Database

_PAUSE = 0.05


class LeadershipContract:
    """One leader at a time, in terms that only grow."""

    async def test_a_second_candidate_stands_by(self, database: Database) -> None:
        async with at_work(database) as scene:
            leading = scene.election
            async with another(database) as other:
                standing_by = other.election(scene.table)
                equal(await standing_by.campaign(), None, "the term of a second leader")
                expect(await leading.heartbeat(scene.term), "the leader's term is over")
                await leading.resign(scene.term)
                term = await _elected(standing_by, within=PATIENCE)
                expect(term > scene.term, f"term {term} does not follow term {scene.term}")
                expect(not await leading.heartbeat(scene.term), "the old term is not over")
                await leading.resign(scene.term)
                expect(await standing_by.heartbeat(term), "an old leader's resignation ended the new term")

    async def test_a_leader_elected_again_has_a_new_term(self, database: Database) -> None:
        async with at_work(database) as scene:
            election = scene.election
            term = await _elected(election, within=PATIENCE)
            expect(term > scene.term, f"term {term} does not follow term {scene.term}")
            expect(not await election.heartbeat(scene.term), "the old term is not over")
            expect(await election.heartbeat(term), "the new term is over")

    async def test_a_leader_that_has_gone_is_replaced(self, database: Database) -> None:
        async with at_work(database, resigns=False) as scene:
            pass
        async with at_work(database) as again:
            expect(again.term > scene.term, f"term {again.term} does not follow term {scene.term}")

    async def test_a_silent_leader_is_replaced_and_claims_nothing_more(self, database: Database) -> None:
        async with at_work(database) as scene, another(database) as other:
            election = other.election(scene.table)
            term = await _elected(election, within=database.takeover + PATIENCE)
            await scene.write(Message(TOPIC, 1))
            equal(await scene.claim(), [], "rows claimed by the leader that was replaced")
            equal((await other.claim(scene.table, scene.terms(term=term))).count, 1, "rows of the new one")

    async def test_a_leader_that_is_heard_is_not_replaced(self, database: Database) -> None:
        async with at_work(database) as scene:
            leading = scene.election
            async with another(database) as other:
                standing_by = other.election(scene.table)
                for _ in range(8):
                    await anyio.sleep(database.takeover / 4)
                    expect(await leading.heartbeat(scene.term), "the leader's term is over")
                    equal(await standing_by.campaign(), None, "the term of a second leader")


async def _elected(election: Election, *, within: float) -> int:
    with anyio.move_on_after(within):
        while True:
            try:
                term = await election.campaign()
            except StorageError:
                term = None  # a session that the server has ended meanwhile: the next try has a new one
            if term is not None:
                return term
            await anyio.sleep(_PAUSE)
    raise AssertionError(f"no candidate was elected within {within:g} s")

"""What order within a key rests on: following a key, and finding who comes before."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from outbox_core.message import Message
from outbox_core.store import Predecessor, Span
from outbox_core.testing.contracts.driving import expect
from outbox_core.testing.contracts.storing.claims import TENANT, TOPIC
from outbox_core.testing.contracts.storing.scene import (
    LONG,
    Scene,
    at_work,
    equal,
    failure,
    ids,
    key_id,
    leases,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_core.store import Claim, KeyId, LeasedRow
    from outbox_core.testing.contracts.storing.database import Database

_SOON = timedelta(milliseconds=300)
_END = 1 << 62


class KeyContract:
    """A key's rows can be taken lowest sequence first, and nobody before them stays hidden."""

    async def test_claiming_keys_takes_the_lowest_sequences_of_each(self, database: Database) -> None:
        first = [Message(TOPIC, n, key="a") for n in range(3)]
        second = [Message(TOPIC, n, key="b") for n in range(3)]
        others = [Message(TOPIC, 9), Message(TOPIC, 9, key="a", tenant_id=TENANT)]
        async with at_work(database) as scene:
            await scene.write(*others, *first, *second)
            rows = await _claimed(scene, {key_id("a"): 2, key_id("b"): 1})
            wanted = [message.event_id for message in (*first[:2], second[0])]
            equal(sorted(ids(rows)), sorted(wanted), "rows")
            equal({row.message.meta.attempts for row in rows}, {1}, "attempts")

    async def test_claiming_keys_finds_no_more_than_is_there(self, database: Database) -> None:
        message = Message(TOPIC, 1, key="a")
        async with at_work(database) as scene:
            await scene.write(message)
            keys = {key_id("a"): 5, key_id("empty"): 5}
            equal(ids(await _claimed(scene, keys)), [message.event_id], "rows")
            equal(await _claimed(scene, keys), [], "rows under a lease")

    async def test_claiming_keys_passes_over_published_and_dead_rows(self, database: Database) -> None:
        messages = [Message(TOPIC, n, key="a") for n in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            rows = await scene.claim(limit=2)
            await scene.store.publish(scene.table, leases(rows[:1]), delete=False)
            await scene.store.fail(scene.table, [failure(rows[1], dead=True)])
            found = await _claimed(scene, {key_id("a"): 1})
            equal(ids(found), [messages[2].event_id], "rows")

    async def test_no_row_overtakes_a_head_that_is_not_due(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=_SOON), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            await scene.write(head, tail)
            equal(await _claimed(scene, {key_id("a"): 1}), [], "rows")
            found = await scene.store.claim_keys(scene.table, scene.terms(), {key_id("a"): 2})
            equal(ids(found.rows()), [tail.event_id], "rows")
            equal(list(found.hidden), [key_id("a")], "keys in which somebody hides")

    async def test_claiming_keys_is_bounded_in_bytes(self, database: Database) -> None:
        messages = [Message(TOPIC, body=bytes(1000), content_type="a/b", key="a") for _ in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            claim = scene.terms(max_bytes=1500)
            equal((await scene.store.claim_keys(scene.table, claim, {key_id("a"): 3})).count, 2, "rows")

    async def test_a_predecessor_that_is_not_due_is_found(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=timedelta(seconds=20)), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            early, late = await scene.write(head, tail)
            leased = await scene.store.claim(scene.table, scene.terms())
            equal(ids(leased.rows()), [tail.event_id], "rows")
            for found in (leased.hidden, await _before(scene, scene.terms(), late)):
                equal(found[key_id("a")].sequence, early, "sequence of the predecessor")
                wait = found[key_id("a")].wait
                expect(wait is not None and 10 < wait <= 20, f"it is due in 20 s, not {wait}")
            equal(await _before(scene, scene.terms(), early), {}, "predecessors of the first")

    async def test_a_predecessor_under_another_lease_is_found(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, _ = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            await scene.claim_one(limit=1)
            found = (await scene.store.claim(scene.table, scene.terms())).hidden[key_id("a")]
            equal(found.sequence, early, "sequence of the predecessor")
            expect(found.wait is not None and LONG - 10 < found.wait <= LONG, f"its lease ends in {LONG:g} s")

    async def test_a_predecessor_between_two_rows_of_a_claim_is_found(self, database: Database) -> None:
        between = Message(TOPIC, 2, key="a", delay=timedelta(seconds=20))
        async with at_work(database) as scene:
            _, hidden, _ = await scene.write(Message(TOPIC, 1, key="a"), between, Message(TOPIC, 3, key="a"))
            leased = await scene.store.claim(scene.table, scene.terms())
            equal(leased.count, 2, "rows")
            equal(leased.hidden[key_id("a")].sequence, hidden, "sequence of the predecessor")

    async def test_a_claim_without_a_term_finds_no_predecessors(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=timedelta(seconds=20)), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            await scene.write(head, tail)
            leased = await scene.store.claim(scene.table, scene.terms(term=None))
            equal((leased.count, len(leased.hidden)), (1, 0), "rows, and what hides")

    async def test_predecessors_can_be_left_to_a_later_step(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=timedelta(seconds=20)), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            await scene.write(head, tail)
            leased = await scene.store.claim(scene.table, scene.terms(look=False))
            equal((leased.count, len(leased.hidden)), (1, 0), "rows, and what hides")

    async def test_claiming_keys_finds_predecessors_in_any_case(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            await scene.store.fail(scene.table, [failure(await scene.claim_one(limit=1), dead=True)])
            claim = scene.terms(dead_hold_keys=True, look=False)
            leased = await scene.store.claim_keys(scene.table, claim, {key_id("a"): 2})
            equal([row.message.meta.sequence for row in leased.rows()], [late], "rows")
            equal(leased.hidden, {key_id("a"): Predecessor(early, None)}, "what hides")

    async def test_who_looks_begins_after_the_floor_of_a_key(self, database: Database) -> None:
        waiting = [Message(TOPIC, n, key="a", delay=timedelta(seconds=20)) for n in range(2)]
        async with at_work(database) as scene:
            first, second, third = await scene.write(*waiting, Message(TOPIC, 3, key="a"))
            for floor, found in ((0, first), (first, second)):
                claim = scene.terms(floors={key_id("a"): floor})
                equal((await _before(scene, claim, third))[key_id("a")].sequence, found, "the predecessor")
            at_second = scene.terms(floors={key_id("a"): second, key_id("b"): third})
            equal(await _before(scene, at_second, third), {}, "predecessors after the floor")
            leased = await scene.store.claim_keys(scene.table, at_second, {key_id("a"): 1})
            equal([row.message.meta.sequence for row in leased.rows()], [third], "the first after the floor")
            equal(leased.hidden, {}, "what hides after the floor")

    async def test_a_floor_hides_no_dead_row(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            await scene.store.fail(scene.table, [failure(await scene.claim_one(limit=1), dead=True)])
            claim = scene.terms(dead_hold_keys=True, floors={key_id("a"): early})
            equal(await _before(scene, claim, late), {key_id("a"): Predecessor(early, None)}, "the dead row")

    async def test_rows_of_the_same_claim_are_no_predecessors(self, database: Database) -> None:
        async with at_work(database) as scene:
            sequences = await scene.write(*(Message(TOPIC, n, key="a") for n in range(3)))
            leased = await scene.store.claim(scene.table, scene.terms())
            equal((leased.count, len(leased.hidden)), (3, 0), "rows, and what hides")
            await scene.store.publish(scene.table, leases(leased.rows()[:1]), delete=False)
            equal(await _before(scene, scene.terms(), sequences[1]), {}, "predecessors that are published")

    async def test_rows_under_own_tokens_are_no_predecessors(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            row = await scene.claim_one(limit=1)
            equal((await _before(scene, scene.terms(), late))[key_id("a")].sequence, early, "the predecessor")
            equal(await _before(scene, scene.terms(own_tokens=[row.token]), late), {}, "predecessors")
            leased = await scene.store.claim(scene.table, scene.terms(own_tokens=[row.token]))
            equal((leased.count, len(leased.hidden)), (1, 0), "rows, and what hides")

    async def test_an_unordered_row_is_a_predecessor_whose_lease_does_not_count(
        self, database: Database
    ) -> None:
        async with at_work(database) as scene:
            early, _ = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            row = await scene.claim_one(limit=1)
            claim = scene.terms(own_tokens=[row.token], unordered_ids=[row.id])
            leased = await scene.store.claim(scene.table, claim)
            equal(leased.hidden[key_id("a")], Predecessor(early, 0.0), "who is before, and for how long")

    async def test_a_claim_says_what_it_leased_before_its_rows_are_made(self, database: Database) -> None:
        async with at_work(database) as scene:
            await scene.write(*(Message(TOPIC, body=bytes(10), content_type="a/b") for _ in range(3)))
            leased = await scene.store.claim(scene.table, scene.terms())
            rows = leased.rows()
            equal((leased.count, leased.bytes), (3, 30), "rows, and bytes of their payloads")
            equal(leased.last, rows[-1].position, "the last one's place")
            nothing = await scene.store.claim(scene.table, scene.terms())
            equal((nothing.count, nothing.bytes, nothing.last), (0, 0, None), "rows, bytes, and the last")

    async def test_equal_keys_of_two_tenants_are_two_keys(self, database: Database) -> None:
        async with at_work(database) as scene:
            await scene.write(
                Message(TOPIC, 1, key="a", tenant_id=TENANT), Message(TOPIC, 2, key="b"), Message(TOPIC, 3)
            )
            equal(await _before(scene, scene.terms(), _END), {}, "predecessors of another tenant's key")
            found = await _before(scene, scene.terms(), _END, key=key_id("a", TENANT))
            equal(list(found), [key_id("a", TENANT)], "keys with a predecessor")
            equal(found[key_id("a", TENANT)].wait, 0.0, "seconds until it is due")

    async def test_dead_rows_count_when_they_hold_their_keys(self, database: Database) -> None:
        message = Message(TOPIC, 1, key="a")
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one()
            await scene.store.fail(scene.table, [failure(row, dead=True)])
            equal(await _before(scene, scene.terms(), _END), {}, "predecessors")
            found = await _before(scene, scene.terms(dead_hold_keys=True), _END)
            equal(found[key_id("a")].wait, None, "seconds until a dead row is due")
            await database.replay(message.event_id)
            for dead_hold_keys in (False, True):
                found = await _before(scene, scene.terms(dead_hold_keys=dead_hold_keys), _END)
                equal(found, {}, "predecessors that are replayed")
            (again,) = await scene.claim_when_due()
            equal(again.message.meta.replays, 1, "replays")


async def _claimed(scene: Scene, keys: Mapping[KeyId, int]) -> list[LeasedRow]:
    return (await scene.store.claim_keys(scene.table, scene.terms(), keys)).rows()


async def _before(
    scene: Scene, claim: Claim, before: int, *, key: KeyId | None = None
) -> dict[KeyId, Predecessor]:
    return await scene.store.predecessors(scene.table, claim, [Span(key or key_id("a"), before)])

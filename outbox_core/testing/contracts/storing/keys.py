"""Order within a key: claiming given keys, and finding predecessors."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from outbox_core.message import Message
from outbox_core.store import KeyRequest, KeySpan, Predecessor
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
    view,
)

if TYPE_CHECKING:
    from outbox_core.store import KeyId, LeasedRow, View
    from outbox_core.testing.contracts.storing.database import Database

_SOON = timedelta(milliseconds=300)
_END = 1 << 62


class KeyContract:
    """Rows of a key can be taken lowest sequence first, and every predecessor of theirs is found."""

    async def test_claiming_keys_takes_the_lowest_sequences_of_each(self, database: Database) -> None:
        first = [Message(TOPIC, n, key="a") for n in range(3)]
        second = [Message(TOPIC, n, key="b") for n in range(3)]
        others = [Message(TOPIC, 9), Message(TOPIC, 9, key="a", tenant_id=TENANT)]
        async with at_work(database) as scene:
            await scene.write(*others, *first, *second)
            rows = await _claimed(scene, KeyRequest(key_id("a"), 2), KeyRequest(key_id("b"), 1))
            wanted = [message.event_id for message in (*first[:2], second[0])]
            equal(sorted(ids(rows)), sorted(wanted), "rows")
            equal({row.message.meta.attempts for row in rows}, {1}, "attempts")

    async def test_claiming_keys_finds_no_more_than_is_there(self, database: Database) -> None:
        message = Message(TOPIC, 1, key="a")
        async with at_work(database) as scene:
            await scene.write(message)
            keys = KeyRequest(key_id("a"), 5), KeyRequest(key_id("empty"), 5)
            equal(ids(await _claimed(scene, *keys)), [message.event_id], "rows")
            equal(await _claimed(scene, *keys), [], "rows under a lease")

    async def test_claiming_keys_passes_over_published_and_dead_rows(self, database: Database) -> None:
        messages = [Message(TOPIC, n, key="a") for n in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            rows = await scene.claim(limit=2)
            await scene.store.publish(scene.table, leases(rows[:1]), delete=False)
            await scene.store.fail(scene.table, [failure(rows[1], dead=True)])
            found = await _claimed(scene, KeyRequest(key_id("a"), 1))
            equal(ids(found), [messages[2].event_id], "rows")

    async def test_no_row_overtakes_a_head_that_is_not_due(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=_SOON), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            await scene.write(head, tail)
            equal(await _claimed(scene, KeyRequest(key_id("a"), 1)), [], "rows")
            claim = scene.terms()
            leased = await scene.store.claim_keys(scene.table, claim, [KeyRequest(key_id("a"), 2)])
            equal(ids(leased.rows()), [tail.event_id], "rows")
            found = await scene.predecessors(claim, leased)
            equal(list(found), [key_id("a")], "keys with a predecessor")

    async def test_claiming_keys_is_bounded_in_bytes(self, database: Database) -> None:
        messages = [Message(TOPIC, body=bytes(1000), content_type="a/b", key="a") for _ in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            claim = scene.terms(max_bytes=1500)
            equal(
                (await scene.store.claim_keys(scene.table, claim, [KeyRequest(key_id("a"), 3)])).count,
                2,
                "rows",
            )

    async def test_a_predecessor_that_is_not_due_is_found(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=timedelta(seconds=20)), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            early, late = await scene.write(head, tail)
            claim = scene.terms()
            leased = await scene.store.claim(scene.table, claim)
            equal(ids(leased.rows()), [tail.event_id], "rows")
            for found in (await scene.predecessors(claim, leased), await _before(scene, view(), late)):
                equal(found[key_id("a")].sequence, early, "sequence of the predecessor")
                wait = found[key_id("a")].wait
                expect(wait is not None and 10 < wait <= 20, f"it is due in 20 s, not {wait}")
            equal(await _before(scene, view(), early), {}, "predecessors of the first")

    async def test_a_predecessor_under_another_lease_is_found(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, _ = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            await scene.claim_one(limit=1)
            claim = scene.terms()
            leased = await scene.store.claim(scene.table, claim)
            found = (await scene.predecessors(claim, leased))[key_id("a")]
            equal(found.sequence, early, "sequence of the predecessor")
            expect(found.wait is not None and LONG - 10 < found.wait <= LONG, f"its lease ends in {LONG:g} s")

    async def test_a_predecessor_between_two_rows_of_a_claim_is_found(self, database: Database) -> None:
        between = Message(TOPIC, 2, key="a", delay=timedelta(seconds=20))
        async with at_work(database) as scene:
            _, middle, _ = await scene.write(Message(TOPIC, 1, key="a"), between, Message(TOPIC, 3, key="a"))
            claim = scene.terms()
            leased = await scene.store.claim(scene.table, claim)
            equal(leased.count, 2, "rows")
            found = await scene.predecessors(claim, leased)
            equal(found[key_id("a")].sequence, middle, "sequence of the predecessor")

    async def test_a_claim_without_a_term_finds_no_predecessors(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=timedelta(seconds=20)), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            await scene.write(head, tail)
            leased = await scene.store.claim(scene.table, scene.terms(term=None))
            equal((leased.count, leased.predecessors), (1, None), "rows, and what comes before them")

    async def test_predecessors_can_be_left_to_a_later_step(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=timedelta(seconds=20)), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            early, _ = await scene.write(head, tail)
            claim = scene.terms(find_predecessors=False)
            leased = await scene.store.claim(scene.table, claim)
            equal((leased.count, leased.predecessors), (1, None), "rows, and what comes before them")
            found = await scene.predecessors(claim, leased)
            equal(found[key_id("a")].sequence, early, "sequence of the predecessor, asked for later")

    async def test_claiming_keys_finds_predecessors_in_any_case(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            await scene.store.fail(scene.table, [failure(await scene.claim_one(limit=1), dead=True)])
            claim = scene.terms(dead_hold_keys=True, find_predecessors=False)
            leased = await scene.store.claim_keys(scene.table, claim, [KeyRequest(key_id("a"), 2)])
            equal([row.message.meta.sequence for row in leased.rows()], [late], "rows")
            found = await scene.predecessors(claim, leased)
            equal(found, {key_id("a"): Predecessor(early, None)}, "what comes before it")

    async def test_a_key_is_read_from_the_lower_bound_of_its_span_on(self, database: Database) -> None:
        waiting = [Message(TOPIC, n, key="a", delay=timedelta(seconds=20)) for n in range(2)]
        async with at_work(database) as scene:
            first, second, third = await scene.write(*waiting, Message(TOPIC, 3, key="a"))
            for after, found in ((0, first), (first, second)):
                before = await _before(scene, view(), third, after=after)
                equal(before[key_id("a")].sequence, found, "the predecessor")
            equal(await _before(scene, view(), third, after=second), {}, "predecessors in the span")
            request = KeyRequest(key_id("a"), 1, after=second)
            leased = await scene.store.claim_keys(scene.table, scene.terms(), [request])
            equal([row.message.meta.sequence for row in leased.rows()], [third], "the first of the key")
            expect(not leased.predecessors, "a predecessor before the span was found")

    async def test_the_lower_bound_of_a_span_hides_no_dead_row(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            await scene.store.fail(scene.table, [failure(await scene.claim_one(limit=1), dead=True)])
            found = await _before(scene, view(dead_hold_keys=True), late, after=early)
            equal(found, {key_id("a"): Predecessor(early, None)}, "the dead row")

    async def test_rows_of_the_same_claim_are_no_predecessors(self, database: Database) -> None:
        async with at_work(database) as scene:
            sequences = await scene.write(*(Message(TOPIC, n, key="a") for n in range(3)))
            claim = scene.terms()
            leased = await scene.store.claim(scene.table, claim)
            found = await scene.predecessors(claim, leased)
            equal((leased.count, len(found)), (3, 0), "rows, and what comes before them")
            await scene.store.publish(scene.table, leases(leased.rows()[:1]), delete=False)
            equal(await _before(scene, view(), sequences[1]), {}, "predecessors that are published")

    async def test_rows_under_own_tokens_are_no_predecessors(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            row = await scene.claim_one(limit=1)
            equal((await _before(scene, view(), late))[key_id("a")].sequence, early, "the predecessor")
            equal(await _before(scene, view(own_tokens=[row.token]), late), {}, "predecessors")
            claim = scene.terms(own_tokens=[row.token])
            leased = await scene.store.claim(scene.table, claim)
            found = await scene.predecessors(claim, leased)
            equal((leased.count, len(found)), (1, 0), "rows, and what comes before them")

    async def test_an_unordered_row_is_a_predecessor_whose_lease_does_not_count(
        self, database: Database
    ) -> None:
        async with at_work(database) as scene:
            early, _ = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            row = await scene.claim_one(limit=1)
            claim = scene.terms(own_tokens=[row.token], unordered_ids=[row.id])
            leased = await scene.store.claim(scene.table, claim)
            found = await scene.predecessors(claim, leased)
            equal(found[key_id("a")], Predecessor(early, 0.0), "the predecessor, and its wait")

    async def test_a_claim_says_what_it_leased_before_its_rows_are_made(self, database: Database) -> None:
        async with at_work(database) as scene:
            await scene.write(*(Message(TOPIC, body=bytes(10), content_type="a/b") for _ in range(3)))
            leased = await scene.store.claim(scene.table, scene.terms())
            rows = leased.rows()
            equal((leased.count, leased.bytes), (3, 30), "rows, and bytes of their payloads")
            equal(leased.last, rows[-1].position, "the position of the last row")
            nothing = await scene.store.claim(scene.table, scene.terms())
            equal((nothing.count, nothing.bytes, nothing.last), (0, 0, None), "rows, bytes, and the last")

    async def test_equal_keys_of_two_tenants_are_two_keys(self, database: Database) -> None:
        async with at_work(database) as scene:
            await scene.write(
                Message(TOPIC, 1, key="a", tenant_id=TENANT), Message(TOPIC, 2, key="b"), Message(TOPIC, 3)
            )
            equal(await _before(scene, view(), _END), {}, "predecessors of another tenant's key")
            found = await _before(scene, view(), _END, key=key_id("a", TENANT))
            equal(list(found), [key_id("a", TENANT)], "keys with a predecessor")
            equal(found[key_id("a", TENANT)].wait, 0.0, "seconds until it is due")

    async def test_dead_rows_count_when_they_hold_their_keys(self, database: Database) -> None:
        message = Message(TOPIC, 1, key="a")
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one()
            await scene.store.fail(scene.table, [failure(row, dead=True)])
            equal(await _before(scene, view(), _END), {}, "predecessors")
            found = await _before(scene, view(dead_hold_keys=True), _END)
            equal(found[key_id("a")].wait, None, "seconds until a dead row is due")
            await database.replay(message.event_id)
            for dead_hold_keys in (False, True):
                found = await _before(scene, view(dead_hold_keys=dead_hold_keys), _END)
                equal(found, {}, "predecessors that are replayed")
            (again,) = await scene.claim_when_due()
            equal(again.message.meta.replays, 1, "replays")


async def _claimed(scene: Scene, *keys: KeyRequest) -> list[LeasedRow]:
    return (await scene.store.claim_keys(scene.table, scene.terms(), keys)).rows()


async def _before(
    scene: Scene, seen: View, before: int, *, after: int = 0, key: KeyId | None = None
) -> dict[KeyId, Predecessor]:
    spans = [KeySpan(key or key_id("a"), after, before)]
    return await scene.store.predecessors(scene.table, spans, seen)

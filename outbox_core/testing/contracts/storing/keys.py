"""What order within a key rests on: following a key, and finding who comes before."""

from __future__ import annotations

from dataclasses import replace
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
    from outbox_core.store import Claim, KeyId
    from outbox_core.testing.contracts.storing.database import Database

_SOON = timedelta(milliseconds=300)
_END = 1 << 62


class KeyContract:
    """A key's rows can be taken lowest sequence first, and nobody before them stays hidden."""

    async def test_following_takes_the_lowest_sequences_of_each_key(self, database: Database) -> None:
        first = [Message(TOPIC, n, key="a") for n in range(3)]
        second = [Message(TOPIC, n, key="b") for n in range(3)]
        others = [Message(TOPIC, 9), Message(TOPIC, 9, key="a", tenant_id=TENANT)]
        async with at_work(database) as scene:
            await scene.write(*others, *first, *second)
            rows = await scene.store.follow(scene.table, scene.terms(), {key_id("a"): 2, key_id("b"): 1})
            wanted = [message.event_id for message in (*first[:2], second[0])]
            equal(sorted(ids(rows)), sorted(wanted), "rows")
            equal({row.message.meta.attempts for row in rows}, {1}, "attempts")

    async def test_following_finds_no_more_than_is_there(self, database: Database) -> None:
        message = Message(TOPIC, 1, key="a")
        async with at_work(database) as scene:
            await scene.write(message)
            keys = {key_id("a"): 5, key_id("nobody"): 5}
            equal(ids(await scene.store.follow(scene.table, scene.terms(), keys)), [message.event_id], "rows")
            equal(await scene.store.follow(scene.table, scene.terms(), keys), [], "rows under a lease")

    async def test_following_passes_over_the_published_and_the_dead(self, database: Database) -> None:
        messages = [Message(TOPIC, n, key="a") for n in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            rows = await scene.claim(limit=2)
            await scene.store.publish(scene.table, leases(rows[:1]), delete=False)
            await scene.store.fail(scene.table, [failure(rows[1], dead=True)])
            found = await scene.store.follow(scene.table, scene.terms(), {key_id("a"): 1})
            equal(ids(found), [messages[2].event_id], "rows")

    async def test_nobody_overtakes_a_head_that_is_not_due(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=_SOON), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            await scene.write(head, tail)
            equal(await scene.store.follow(scene.table, scene.terms(), {key_id("a"): 1}), [], "rows")

    async def test_following_is_bounded_in_bytes(self, database: Database) -> None:
        messages = [Message(TOPIC, body=bytes(1000), content_type="a/b", key="a") for _ in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            claim = scene.terms(max_bytes=1500)
            equal(len(await scene.store.follow(scene.table, claim, {key_id("a"): 3})), 2, "rows")

    async def test_a_predecessor_that_is_not_due_is_found(self, database: Database) -> None:
        head, tail = Message(TOPIC, 1, key="a", delay=timedelta(seconds=20)), Message(TOPIC, 2, key="a")
        async with at_work(database) as scene:
            early, late = await scene.write(head, tail)
            claim = scene.terms()
            await scene.store.claim(scene.table, claim)
            found = await _before(scene, claim, late)
            equal(found[key_id("a")].sequence, early, "sequence of the predecessor")
            wait = found[key_id("a")].wait
            expect(wait is not None and 10 < wait <= 20, f"it is due in 20 s, not {wait}")
            equal(await _before(scene, claim, early), {}, "predecessors of the first")

    async def test_a_predecessor_under_another_lease_is_found(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            await scene.claim_one(limit=1)
            claim = scene.terms()
            await scene.store.claim(scene.table, claim)
            found = (await _before(scene, claim, late))[key_id("a")]
            equal(found.sequence, early, "sequence of the predecessor")
            expect(found.wait is not None and LONG - 10 < found.wait <= LONG, f"its lease ends in {LONG:g} s")

    async def test_what_the_same_claim_has_is_no_predecessor(self, database: Database) -> None:
        async with at_work(database) as scene:
            sequences = await scene.write(*(Message(TOPIC, n, key="a") for n in range(3)))
            claim = scene.terms()
            rows = await scene.store.claim(scene.table, claim)
            equal(await _before(scene, claim, sequences[-1]), {}, "predecessors")
            await scene.store.publish(scene.table, leases(rows[:1]), delete=False)
            equal(await _before(scene, scene.terms(), sequences[1]), {}, "predecessors that are published")

    async def test_what_is_in_hand_is_no_predecessor(self, database: Database) -> None:
        async with at_work(database) as scene:
            early, late = await scene.write(Message(TOPIC, 1, key="a"), Message(TOPIC, 2, key="a"))
            row = await scene.claim_one(limit=1)
            claim = scene.terms()
            equal((await _before(scene, claim, late))[key_id("a")].sequence, early, "the predecessor")
            claim = replace(claim, in_hand=[row.token])
            equal(await _before(scene, claim, late), {}, "predecessors")

    async def test_keys_and_tenants_are_apart(self, database: Database) -> None:
        async with at_work(database) as scene:
            await scene.write(
                Message(TOPIC, 1, key="a", tenant_id=TENANT), Message(TOPIC, 2, key="b"), Message(TOPIC, 3)
            )
            equal(await _before(scene, scene.terms(), _END), {}, "predecessors of another tenant's key")
            found = await _before(scene, scene.terms(), _END, key=key_id("a", TENANT))
            equal(list(found), [key_id("a", TENANT)], "keys with a predecessor")
            equal(found[key_id("a", TENANT)].wait, 0.0, "seconds until it is due")

    async def test_the_dead_count_when_they_are_asked_for(self, database: Database) -> None:
        message = Message(TOPIC, 1, key="a")
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one()
            await scene.store.fail(scene.table, [failure(row, dead=True)])
            equal(await _before(scene, scene.terms(), _END), {}, "predecessors")
            found = await _before(scene, scene.terms(), _END, dead_too=True)
            equal(found[key_id("a")].wait, None, "seconds until a dead row is due")
            await database.replay(message.event_id)
            for dead_too in (False, True):
                found = await _before(scene, scene.terms(), _END, dead_too=dead_too)
                equal(found, {}, "predecessors that are replayed")
            (again,) = await scene.claim_when_due()
            equal(again.message.meta.replays, 1, "replays")


async def _before(
    scene: Scene,
    claim: Claim,
    before: int,
    *,
    key: KeyId | None = None,
    dead_too: bool = False,
) -> dict[KeyId, Predecessor]:
    spans = [Span(key or key_id("a"), before)]
    return await scene.store.predecessors(scene.table, claim, spans, dead_too=dead_too)

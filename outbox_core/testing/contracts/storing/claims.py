"""Claims: which rows they take, in which order, and which they pass over."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import anyio

from outbox_core.message import Message
from outbox_core.record import State
from outbox_core.store import KeyRequest
from outbox_core.testing.contracts.driving import expect
from outbox_core.testing.contracts.storing.scene import another, at_work, equal, ids, key_id

if TYPE_CHECKING:
    from outbox_core.store import LeasedRow
    from outbox_core.testing.contracts.storing.database import Database

TENANT = UUID("6f1d1a4e-6a1f-4c57-9d6c-2f0f5f9f1c11")
TOPIC = "shop.orders.placed.v1"


class ClaimContract:
    """A claim leases due rows in the order of their positions and counts an attempt for each."""

    async def test_a_claim_brings_what_was_enqueued(self, database: Database) -> None:
        json = Message(TOPIC, {"total": "1.50"}, tenant_id=TENANT, key="k", headers={"source": "test"})
        body = Message(TOPIC, body=b"\x00\xff", content_type="application/x-test")
        async with at_work(database) as scene:
            sequences = await scene.write(json, body)
            first, second = await scene.claim()
            meta = first.message.meta
            equal((meta.topic, meta.tenant_id, meta.key), (TOPIC, TENANT, "k"), "topic, tenant and key")
            equal(dict(meta.headers), {"source": "test"}, "headers")
            equal((meta.table, meta.event_id), (str(database.table), json.event_id), "table and event_id")
            equal((meta.sequence, meta.attempts, meta.replays), (sequences[0], 1, 0), "sequence and counts")
            equal(first.message.json(), {"total": "1.50"}, "payload")
            equal(first.message.content_type, "application/json", "content type")
            equal(first.key_id, key_id("k", TENANT), "key_id")
            equal(second.message.payload, b"\x00\xff", "body")
            equal(second.message.content_type, "application/x-test", "content type of a body")
            equal(second.key_id, None, "key_id without a key")
            stored = await scene.stored(json)
            equal((stored.state, stored.attempts), (State.IN_FLIGHT, 1), "state and attempts in the store")
            equal(first.position, (stored.available_at, sequences[0]), "position")

    async def test_rows_come_in_the_order_of_their_positions(self, database: Database) -> None:
        late = Message(TOPIC, 1, delay=timedelta(milliseconds=40))
        early = [Message(TOPIC, n) for n in range(5)]
        async with at_work(database) as scene:
            await scene.write(late, *early)
            await anyio.sleep(0.05)
            rows = await scene.claim()
            equal(ids(rows), [m.event_id for m in (*early, late)], "order")
            equal(sorted(row.position for row in rows), [row.position for row in rows], "positions")

    async def test_what_is_not_due_waits(self, database: Database) -> None:
        message = Message(TOPIC, 1, delay=timedelta(milliseconds=300))
        async with at_work(database) as scene:
            await scene.write(message)
            equal(await scene.claim(), [], "rows before their time")
            equal(ids(await scene.claim_when_due()), [message.event_id], "rows after it")

    async def test_only_what_is_committed_is_seen(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            try:
                async with database.transaction() as tx:
                    await scene.outbox.enqueue(tx, message)
                    equal(await scene.claim(), [], "rows of an open transaction")
                    raise LookupError  # rolls back
            except LookupError:
                pass
            equal(await scene.claim(), [], "rows of a transaction that was rolled back")

    async def test_the_limit_takes_the_first_positions(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(4)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            equal(ids(await scene.claim(limit=3)), [m.event_id for m in messages[:3]], "the first claim")
            equal(ids(await scene.claim(limit=3)), [messages[3].event_id], "the second claim")
            equal(await scene.claim(limit=3), [], "the third claim")

    async def test_bytes_are_bounded_but_one_row_always_comes(self, database: Database) -> None:
        messages = [Message(TOPIC, body=bytes(1000), content_type="a/b") for _ in range(4)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            equal(len(await scene.claim(max_bytes=1)), 1, "rows for 1 byte")
            equal(len(await scene.claim(max_bytes=1500)), 2, "rows of 1000 bytes for 1500")
            equal(len(await scene.claim(max_bytes=10_000)), 1, "rows left")

    async def test_a_claim_reads_on_from_a_position(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(3)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            rows = await scene.claim()
            await scene.store.release(scene.table, [(r.id, r.token) for r in rows], restamp=False)
            again = await scene.claim(since=rows[1].position)
            equal(ids(again), [m.event_id for m in messages[1:]], "rows from the second position on")

    async def test_a_claim_reads_up_to_a_position(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(5)]
        async with at_work(database) as scene:
            await scene.write(*messages)
            rows = await scene.claim()
            await scene.store.release(scene.table, [(r.id, r.token) for r in rows], restamp=False)
            third = await scene.store.position_after(scene.table, rows[1].position, 1)
            equal(third, rows[2].position, "the position one row on from the second")
            equal(
                await scene.store.position_after(scene.table, rows[1].position, 4),
                None,
                "a position past the last row",
            )
            again = await scene.claim(since=rows[1].position, until=rows[2].position)
            equal(
                ids(again), [m.event_id for m in messages[1:3]], "rows from the second position to the third"
            )

    async def test_a_claim_without_content_reads_none(self, database: Database) -> None:
        message = Message(TOPIC, {"total": "1.50"}, key="k")
        async with at_work(database) as scene:
            await scene.write(message)
            row = await scene.claim_one(without_content=True)
            equal((row.message.payload, row.message.meta.key), (b"", "k"), "content and key")
            await scene.store.read_content(scene.table, row.id)
            await scene.store.release(scene.table, [row.lease], restamp=False)
            leased = await scene.store.claim_keys(
                scene.table, scene.terms(without_content=True), [KeyRequest(key_id("k"), 1)]
            )
            equal([row.message.payload for row in leased.rows()], [b""], "content of a key that was claimed")

    async def test_held_keys_are_passed_over_for_their_tenant_alone(self, database: Database) -> None:
        held, other = Message(TOPIC, 1, key="k"), Message(TOPIC, 2, key="k", tenant_id=TENANT)
        free, keyless = Message(TOPIC, 3, key="other"), Message(TOPIC, 4)
        async with at_work(database) as scene:
            await scene.write(held, other, free, keyless)
            rows = await scene.claim(held_keys=[key_id("k")])
            equal(ids(rows), [m.event_id for m in (other, free, keyless)], "rows beside the held key")

    async def test_blocked_topics_are_passed_over(self, database: Database) -> None:
        blocked, other = Message(TOPIC, 1), Message("shop.orders.paid.v1", 2)
        async with at_work(database) as scene:
            await scene.write(blocked, other)
            equal(ids(await scene.claim(blocked_topics=[TOPIC])), [other.event_id], "rows of open topics")
            equal(ids(await scene.claim()), [blocked.event_id], "rows once the topic is open")

    async def test_a_lease_keeps_others_away_until_it_is_void(self, database: Database) -> None:
        message = Message(TOPIC, 1)
        async with at_work(database) as scene:
            await scene.write(message)
            first = await scene.claim_one()
            equal(await scene.claim(), [], "rows under a lease")
            (second,) = await scene.claim_when_due(lock_ttl=0.05)
            equal((second.id, second.message.meta.attempts), (first.id, 2), "row and attempts, claimed again")
            expect(second.token != first.token, "the second lease has the token of the first")

    async def test_claims_at_one_time_share_nothing(self, database: Database) -> None:
        messages = [Message(TOPIC, n) for n in range(60)]
        taken: list[UUID] = []
        async with at_work(database) as scene:
            await scene.write(*messages)

            async def claim_all() -> None:
                rows: list[LeasedRow] = []
                async with another(database) as store:
                    for _ in range(6):
                        rows += (await store.claim(scene.table, scene.terms(term=None, limit=7))).rows()
                taken.extend(ids(rows))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(claim_all)
            rest = await scene.claim()
        taken.extend(ids(rest))
        equal(sorted(taken), sorted(m.event_id for m in messages), "all rows, each once")

    async def test_a_term_that_is_over_claims_nothing(self, database: Database) -> None:
        message = Message(TOPIC, 1, key="k")
        async with at_work(database) as scene:
            await scene.write(message)
            for term in (scene.term - 1, scene.term + 1):
                equal(await scene.claim(term=term), [], f"rows in term {term} of {scene.term}")
                claim = scene.terms(term=term)
                leased = await scene.store.claim_keys(scene.table, claim, [KeyRequest(key_id("k"), 1)])
                equal(leased.count, 0, "rows of a key")
            equal((await scene.stored(message)).attempts, 0, "attempts")
            equal(ids(await scene.claim(term=None)), [message.event_id], "rows where no relay leads")

"""Ticks, wake-up hints, opening and closing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from outbox_core.errors import StorageError
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.testing.contracts.driving import expect
from outbox_core.testing.contracts.storing.claims import TOPIC
from outbox_core.testing.contracts.storing.scene import PATIENCE, at_work, equal

if TYPE_CHECKING:
    from outbox_core.store import Store
    from outbox_core.table import TableName
    from outbox_core.testing.contracts.storing.database import Database

_CLOSE_SECONDS = 5.0


class SessionContract:
    """The clock, the transactions under way, hints, and an end in bounded time."""

    async def test_a_tick_shows_the_clock_and_uncommitted_transactions(self, database: Database) -> None:
        async with at_work(database) as scene:
            before = await scene.store.tick(scene.table)
            async with database.transaction() as tx:
                await scene.outbox.enqueue(tx, Message(TOPIC, 1))
                during = await scene.store.tick(scene.table)
            after = await scene.store.tick(scene.table)
            equal(sorted([after, during, before], key=lambda t: t.now), [before, during, after], "order")
            expect(
                bool(during.uncommitted - before.uncommitted), "an open transaction is not seen as running"
            )
            expect(
                not (during.uncommitted - before.uncommitted) & after.uncommitted,
                "an ended one is still seen as running",
            )
            equal(len(await scene.claim()), 1, "rows committed")

    async def test_a_tick_shows_writers_that_may_have_drawn_a_sequence(self, database: Database) -> None:
        async with at_work(database) as scene:
            before = await scene.store.tick(scene.table)
            async with database.transaction() as first:
                await scene.outbox.enqueue(first, Message(TOPIC, 1))
                one = await scene.store.tick(scene.table)
                async with database.transaction() as second:
                    await scene.outbox.enqueue(second, Message(TOPIC, 2))
                    both = await scene.store.tick(scene.table)
            after = await scene.store.tick(scene.table)
            expect(bool(one.writers - before.writers), "a transaction that wrote is not among the writers")
            expect(bool(both.writers - one.writers), "nor is the one after it")
            expect(one.writers <= both.writers, "one that is still open is not seen any more")
            equal(
                after.writers & (both.writers - before.writers),
                frozenset[object](),
                "writers that have ended",
            )

    async def test_a_stamp_is_not_older_than_the_tick_before_it(self, database: Database) -> None:
        """A relay reads on from before its last ticks: no row may appear behind the tick that preceded its write."""
        async with at_work(database) as scene:
            async with database.transaction() as tx:
                tick = await scene.store.tick(scene.table)
                await scene.outbox.enqueue(tx, message := Message(TOPIC, 1))
            expect((await scene.stored(message)).available_at >= tick.now, "stamped before it was written")

    async def test_no_session_is_ended_without_reason(self, database: Database) -> None:
        async with at_work(database) as scene:
            equal(await scene.store.end_stuck_sessions(scene.table, 0.0), [], "sessions ended")

    async def test_hints_arrive(self, database: Database) -> None:
        heard: list[TableName | None] = []
        async with at_work(database) as scene:
            other = database.make()
            other.listen([scene.table], heard.append)
            try:
                await other.open([scene.table])
                await other.keep_listening()
                heard.clear()
                async with database.transaction() as tx:
                    await Outbox(scene.table).enqueue(tx, Message(TOPIC, 1))
                if other.capabilities.wakeups != "push":
                    return  # a relay on such a store polls
                with anyio.move_on_after(PATIENCE):
                    while not heard:
                        await other.keep_listening()
                        await anyio.sleep(0.02)
                expect(scene.table in heard, f"a hint for {scene.table} did not arrive, but {heard}")
            finally:
                await other.close()

    async def test_it_closes_in_bounded_time_and_twice(self, database: Database) -> None:
        store = database.make()
        await store.open([database.table])
        await store.tick(database.table)
        with anyio.fail_after(_CLOSE_SECONDS):
            await store.close()
            await store.close()
        await _refuses(store, database)

    async def test_after_an_abort_every_call_ends_with_an_error(self, database: Database) -> None:
        store = database.make()
        await store.open([database.table])
        store.abort()
        await _refuses(store, database)
        await store.close()


async def _refuses(store: Store, database: Database) -> None:
    with anyio.fail_after(_CLOSE_SECONDS):
        try:
            await store.tick(database.table)
        except StorageError:
            return
    raise AssertionError("a store that is closed still answers")

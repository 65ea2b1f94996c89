"""Cleaning and dead letters: what is seen, what is changed, and what is put on record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID, uuid4

from outbox_core.admin_store import Attribution, HasAdminStore
from outbox_core.cleaner import Cleaner, CleanerSettings, Pass
from outbox_core.dead_letters import Action, DeadLetters, Filter, GroupBy
from outbox_core.message import Message
from outbox_core.record import State
from outbox_core.store import Election, Failure, KeyRequest, LeasedRow, Store
from outbox_core.testing.contracts.driving import expect
from outbox_core.testing.contracts.storing.claims import TOPIC
from outbox_core.testing.contracts.storing.scene import Scene, at_work, equal, failure, ids, key_id, leases

if TYPE_CHECKING:
    from outbox_core.testing.contracts.storing.database import Database

_OTHER: Final = "shop.invoice.sent.v2"
_TENANT: Final = UUID(int=7)
_BECAUSE: Final[dict[str, Any]] = {"actor": "ada", "reason": "the consumer is mended"}
_AT_ONCE: Final = CleanerSettings(retention=1e-6, dead_retention=1e-6)


class Yard(Scene):
    """A scene whose store has an admin store."""

    def __init__(
        self, database: Database, store: Store, election: Election, term: int, administered: HasAdminStore
    ) -> None:
        super().__init__(database, store, election, term)
        self.administered = administered
        self.letters = DeadLetters(administered, database.table)

    async def dead(self, *messages: Message, error: str = "PROVIDER.TEST refused") -> list[UUID]:
        """Write messages and have them die, in the order given."""
        wanted = await self._leased(*messages)
        for row in wanted:
            death = Failure(row.id, row.token, error, 0.0, refund=False, dead=True)
            await self.store.fail(self.table, [death])
        return [message.event_id for message in messages]

    async def published(self, *messages: Message) -> list[UUID]:
        await self.store.publish(self.table, leases(await self._leased(*messages)), delete=False)
        return [message.event_id for message in messages]

    async def _leased(self, *messages: Message) -> list[LeasedRow]:
        """Write messages and claim them; what else is due stays as it is."""
        await self.write(*messages)
        wanted = {message.event_id for message in messages}
        rows = await self.claim()
        others = [row for row in rows if row.message.meta.event_id not in wanted]
        await self.store.release(self.table, leases(others), restamp=False)
        return [row for row in rows if row.message.meta.event_id in wanted]

    async def states(self, event_ids: Sequence[UUID]) -> list[State | None]:
        found = [await self.letters.show(event_id) for event_id in event_ids]
        return [None if message is None else message.state for message in found]


@asynccontextmanager
async def _looked_after(database: Database) -> AsyncGenerator[Yard]:
    async with at_work(database) as scene:
        store = scene.store
        expect(isinstance(store, HasAdminStore), f"{type(store).__name__} offers no admin store")
        yield Yard(database, store, scene.election, scene.term, cast("HasAdminStore", store))


class AdminStoreContract:
    """Everything `DeadLetters` and `Cleaner` rely on."""

    async def test_filters_mean_what_they_say(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            first = await yard.dead(Message(TOPIC, 1), Message(TOPIC, 2))
            await yard.dead(Message(_OTHER, 3, tenant_id=_TENANT), error="TX.TIMEOUT no answer")
            await yard.published(Message(TOPIC, 4))
            await yard.write(Message(TOPIC, 5))
            page = await yard.letters.list()
            last = page.messages[-1].dead_at
            cases: list[tuple[dict[str, Any], int]] = [
                ({}, 3),
                ({"topic": TOPIC}, 2),
                ({"topic": "shop.**"}, 3),
                ({"topic": "**.v2"}, 1),
                ({"topic": "*"}, 0),
                ({"tenant_id": _TENANT}, 1),
                ({"code": "TX.TIMEOUT"}, 1),
                ({"code": "TX"}, 0),
                ({"since": last}, 1),
                ({"until": last}, 2),
                ({"event_ids": [first[0], uuid4()]}, 1),
            ]
            for conditions, count in cases:
                wanted = Filter(**conditions)
                equal(await yard.letters.count(wanted), count, f"dead letters that meet {conditions}")
                equal(len((await yard.letters.list(wanted)).messages), count, f"listed for {conditions}")
                if conditions:
                    equal((await yard.letters.plan(wanted)).total, count, f"planned for {conditions}")

    async def test_pages_follow_each_other(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            wanted = await yard.dead(*(Message(TOPIC, number) for number in range(5)))
            first = await yard.letters.list(limit=3)
            second = await yard.letters.list(limit=3, after=first.next)
            seen = [message.event_id for message in (*first.messages, *second.messages)]
            equal(seen, wanted, "dead letters on two pages")
            equal(second.next, None, "a page after the last")

    async def test_groups_are_counted(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            await yard.dead(Message(TOPIC, 1), Message(_OTHER, 2), error="TX.TIMEOUT no answer")
            await yard.dead(Message(TOPIC, 3, tenant_id=_TENANT), error="")
            by_code = [(group.value, group.count) for group in await yard.letters.group(GroupBy.CODE)]
            equal(by_code, [("TX.TIMEOUT", 2), ("UNKNOWN.ERROR", 1)], "groups by code")
            by_topic = [(group.value, group.count) for group in await yard.letters.group(GroupBy.TOPIC)]
            equal(by_topic, [(TOPIC, 2), (_OTHER, 1)], "groups by topic")
            by_tenant = await yard.letters.group(GroupBy.TENANT, limit=1)
            equal([(group.value, group.count) for group in by_tenant], [(str(UUID(int=0)), 2)], "tenants")
            hours = await yard.letters.group(GroupBy.HOUR)
            equal(hours[0].value, f"{hours[0].oldest:%Y-%m-%dT%H:00Z}", "the first hour")

    async def test_content_is_read_only_when_asked_for(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            (event_id,) = await yard.dead(Message(TOPIC, 1, headers={"h": "v"}))
            shown = await yard.letters.show(event_id)
            whole = await yard.letters.show(event_id, payload=True)
            if shown is None or whole is None:
                raise AssertionError("the dead letter is not shown")
            equal((shown.payload, shown.headers), (None, None), "content that was not asked for")
            equal((whole.payload, dict(whole.headers or {})), (b"1", {"h": "v"}), "content")
            equal(await yard.letters.show(uuid4()), None, "a message that is not there")

    async def test_a_replay_makes_messages_as_new(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            wanted = await yard.dead(Message(TOPIC, 1), Message(TOPIC, 2))
            plan = await yard.letters.plan(Filter(topic=TOPIC))
            equal((plan.total, dict(plan.topics)), (2, {TOPIC: 2}), "planned")
            outcome = await yard.letters.replay(plan, **_BECAUSE)
            equal((outcome.changed, outcome.changed_now, outcome.skipped), (2, 2, 0), "the outcome")
            rows = await yard.claim()
            equal(ids(rows), wanted, "claimed after the replay")
            counts = {(row.message.meta.replays, row.message.meta.attempts) for row in rows}
            equal(counts, {(1, 1)}, "replays and attempts")
            again = await yard.letters.replay(plan, **_BECAUSE)
            equal((again.changed, again.changed_now), (2, 0), "the same plan again")

    async def test_a_replay_leaves_alone_what_moved_on(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            moved, stays = await yard.dead(Message(TOPIC, 1), Message(TOPIC, 2))
            plan = await yard.letters.plan(Filter(topic=TOPIC))
            other = await yard.letters.plan(Filter(event_ids=[moved]))
            await yard.letters.replay(other, **_BECAUSE)
            (later,) = await yard.dead(Message(_OTHER, 3))
            outcome = await yard.letters.replay(plan, **_BECAUSE)
            equal((outcome.changed, outcome.skipped), (1, 1), "changed and skipped")
            message = await yard.letters.show(moved)
            expect(message is not None and message.replays == 1, "a message was replayed twice")
            equal(await yard.states([stays, later]), [State.PENDING, State.DEAD], "states")

    async def test_a_rate_spreads_messages_over_time(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            wanted = await yard.dead(*(Message(TOPIC, number) for number in range(3)))
            plan = await yard.letters.plan(Filter(topic=TOPIC))
            await yard.letters.replay(plan, rate=0.1, **_BECAUSE)
            shown = [await yard.letters.show(event_id) for event_id in wanted]
            moments = [message.available_at for message in shown if message is not None]
            equal(
                [moment - moments[0] for moment in moments],
                [timedelta(0, 10 * n) for n in range(3)],
                "spread",
            )

    async def test_published_messages_are_replayed_only_when_meant(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            wanted = await yard.published(Message(TOPIC, 1), Message(TOPIC, 2))
            equal((await yard.letters.plan(Filter(topic=TOPIC))).total, 0, "dead letters planned")
            plan = await yard.letters.plan(Filter(topic=TOPIC), published=True)
            equal((await yard.letters.replay(plan, **_BECAUSE)).changed, 2, "replayed")
            equal(await yard.states(wanted), [State.PENDING] * 2, "states")

    async def test_discarded_messages_are_gone_and_on_record(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            gone = await yard.dead(Message(TOPIC, 1))
            kept = await yard.dead(Message(_OTHER, 2))
            plan = await yard.letters.plan(Filter(topic=TOPIC))
            await yard.letters.discard(plan, **_BECAUSE)
            equal(await yard.states([*gone, *kept]), [None, State.DEAD], "states")
            record = (await yard.letters.history())[0]
            equal((record.id, record.action), (plan.id, Action.DISCARD), "what is on record")
            equal((record.actor, record.reason), ("ada", "the consumer is mended"), "who and why")
            equal(
                (record.planned, record.changed, record.filter), (1, 1, {"topic": TOPIC}), "how many, which"
            )
            equal(list(await yard.letters.history(unfinished=True)), [], "unfinished")

    async def test_who_goes_on_with_what_was_broken_off_is_on_record(self, database: Database) -> None:
        """The record that was begun keeps its actor and counts; the other says who went on."""
        async with _looked_after(database) as yard:
            await yard.dead(Message(TOPIC, 1))
            plan = await yard.letters.plan(Filter(everything=True))
            await yard.administered.admin_store.begin(
                plan, Attribution(plan.id, "ada", "first try"), "discard", None
            )
            await yard.letters.resume(plan.id, actor="bob", reason="the host died")
            found = [(each.actor, each.reason, each.changed) for each in await yard.letters.history()]
            equal(found, [("bob", "the host died", 0), ("ada", "first try", 1)], "the audit")
            equal((await yard.letters.history())[0].filter, {"resumes": str(plan.id)}, "the filter")
            equal(list(await yard.letters.history(unfinished=True)), [], "unfinished")

    async def test_the_head_of_a_key_is_released(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            (dead,) = await yard.dead(Message(TOPIC, 1, key="k"))
            waiting = Message(TOPIC, 2, key="k", delay=timedelta(hours=1))
            await yard.write(waiting)
            for event_id, replays in ((dead, 1), (waiting.event_id, 0)):
                head = await yard.letters.head("k")
                equal(None if head is None else head.event_id, event_id, "the head of the key")
                released = await yard.letters.release("k", **_BECAUSE)
                if released is None:
                    raise AssertionError("nothing was released")
                equal((released.event_id, released.replays), (event_id, replays), "released")
            followed = await yard.store.claim_keys(yard.table, yard.terms(), [KeyRequest(key_id("k"), 5)])
            equal(followed.count, 2, "followed")
            equal(await yard.letters.release("k", **_BECAUSE), None, "released in flight")
            equal(await yard.letters.release("nobody's", **_BECAUSE), None, "released of no key")

    async def test_a_replayed_message_that_waits_takes_nobodys_place(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            await yard.dead(Message(TOPIC, 1, key="k"))
            await yard.letters.replay(await yard.letters.plan(Filter(topic=TOPIC)), **_BECAUSE)
            (replayed,) = await yard.claim()
            await yard.store.fail(yard.table, [failure(replayed, delay=3600.0)])
            second = Message(TOPIC, 2, key="k")
            await yard.write(second)
            followed = await yard.store.claim_keys(yard.table, yard.terms(), [KeyRequest(key_id("k"), 1)])
            equal(ids(followed.rows()), [second.event_id], "followed")
            equal(dict(followed.predecessors or {}), {}, "what comes before it")

    async def test_pending_messages_are_put_off_and_brought_forward(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            message = Message(TOPIC, 1)
            await yard.write(message)
            (dead,) = await yard.dead(Message(_OTHER, 2))
            later = timedelta(hours=1)
            record = await yard.letters.postpone([message.event_id, dead], delay=later, **_BECAUSE)
            equal((record.planned, record.changed, record.skipped), (2, 1, 1), "postponed")
            equal(await yard.claim(), [], "claimed before its time")
            await yard.letters.postpone([message.event_id], delay=timedelta(), **_BECAUSE)
            equal(ids(await yard.claim_when_due()), [message.event_id], "claimed when brought forward")

    async def test_the_cleaner_deletes_what_is_old_enough_and_blocks_nobody(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            (blocking,) = await yard.dead(Message(TOPIC, 1, key="k"))
            done = await yard.published(Message(TOPIC, 2))
            (dead,) = await yard.dead(Message(TOPIC, 3, key="other"))
            waiting = Message(TOPIC, 4, key="k")
            await yard.write(waiting)
            equal(await Cleaner(yard.administered, yard.table).clean(), Pass(), "cleaned of what is recent")
            equal(await Cleaner(yard.administered, yard.table, _AT_ONCE).clean(), Pass(1, 1), "cleaned")
            states = await yard.states([blocking, *done, dead, waiting.event_id])
            equal(states, [State.DEAD, None, None, State.PENDING], "states")

    async def test_a_clean_up_by_hand_is_shown_beforehand_and_put_on_record(self, database: Database) -> None:
        async with _looked_after(database) as yard:
            await yard.dead(Message(TOPIC, 1, key="k"), Message(TOPIC, 2, key="other"))
            await yard.published(Message(TOPIC, 3), Message(TOPIC, 4), Message(TOPIC, 5))
            await yard.write(Message(TOPIC, 6, key="k"))
            recent = await Cleaner(yard.administered, yard.table).preview()
            equal((recent.published.value, recent.dead.value, recent.oldest), (0, 0, None), "recent ones")
            cleaner = Cleaner(yard.administered, yard.table, _AT_ONCE)
            found = await cleaner.preview(limit=2)
            equal((str(found.published), str(found.dead)), ("at least 2", "1"), "what would be deleted")
            expect(found.oldest is not None, "the oldest has no moment")
            equal(await cleaner.clean(**_BECAUSE), Pass(3, 1), "cleaned")
            (record,) = await yard.letters.history()
            equal((record.action, record.planned, record.changed), (Action.CLEAN, 4, 4), "what is on record")
            equal((record.actor, record.reason), ("ada", "the consumer is mended"), "who and why")
            expect(record.finished_at is not None, "the record is not finished")

"""A message's life with everybody under a role of their own: written, delivered, dead, replayed, discarded, cleaned."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_core import schema
from outbox_core.cleaner import Cleaner, CleanerSettings
from outbox_core.dead_letters import DeadLetters, Filter
from outbox_core.errors import EventIdConflict, PermanentError, PermissionDenied, SchemaError
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.monitor import read_status
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from tests.integration.roles.cast import TABLE, Cast
from tests.kit.settings import QUICK_POSTGRES

pytestmark = [pytest.mark.asyncio, pytest.mark.store]
TOPIC = "shop.order.placed.v1"
BECAUSE: dict[str, Any] = {"actor": "ada", "reason": "the consumer is mended"}


class Picky:
    """Refuses what it was told to refuse, until it is mended."""

    def __init__(self) -> None:
        self.mended = False
        self.arrived: list[Any] = []

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if message.json() == "bad" and not self.mended:
            raise PermanentError("no")
        self.arrived.append(message.json())


async def enqueue(cast: Cast, *payloads: object, **fields: Any) -> list[int]:
    async with cast.session("producer") as session, session.transaction():
        return await Outbox(TABLE).enqueue_many(
            session, [Message(TOPIC, each, **fields) for each in payloads]
        )


async def test_the_whole_story(cast: Cast) -> None:
    outbox, picky = Outbox(TABLE), Picky()
    async with cast.session("producer") as session:
        once = Message(TOPIC, "good", key="a")
        async with session.transaction():
            first = await outbox.enqueue(session, once, serialize_key=True)
            await outbox.enqueue_many(session, [Message(TOPIC, "bad"), Message(TOPIC, "bad")])
        undone = session.transaction()
        await undone.start()
        await outbox.enqueue(session, Message(TOPIC, "never"))
        await undone.rollback()
        async with session.transaction():
            assert await outbox.enqueue(session, once) == first
        with pytest.raises(EventIdConflict):
            async with session.transaction():
                await outbox.enqueue(session, Message(TOPIC, "else", event_id=once.event_id))

    relay = Relay(cast.dsn("relay"), table=TABLE, dispatcher=picky, **QUICK_POSTGRES)
    assert await relay.drain() == 1
    assert picky.arrived == ["good"]
    (status,) = await read_status(cast.dsn("viewer"), TABLE)
    assert (status.pending.value, status.dead.value) == (0, 2)

    picky.mended = True
    async with PostgresAdminStore.connect(cast.dsn("operator"), TABLE) as admin_store:
        letters = DeadLetters(admin_store, TABLE)
        listed = (await letters.list()).messages
        assert [each.payload for each in listed] == [None, None]
        one, other = (each.event_id for each in listed)
        assert (await letters.replay(await letters.plan(Filter(event_ids=[one])), **BECAUSE)).changed == 1
        assert (await letters.discard(await letters.plan(Filter(event_ids=[other])), **BECAUSE)).changed == 1
        with pytest.raises(PermissionDenied):
            await letters.show(one, payload=True)
    assert await Relay(cast.dsn("relay"), table=TABLE, dispatcher=picky, **QUICK_POSTGRES).drain() == 1
    assert picky.arrived == ["good", "bad"]

    async with cast.session("admin") as admin:
        await admin.execute("UPDATE shop.orders_outbox SET published_at = now() - interval '8 days'")
        async with PostgresAdminStore.connect(cast.dsn("relay"), TABLE) as admin_store:
            cleaned = await Cleaner(admin_store, TABLE, CleanerSettings()).clean()
        assert cleaned.published == 2
        assert await admin.fetchval("SELECT count(*) FROM shop.orders_outbox") == 0
        audit = await admin.fetch(
            "SELECT action, actor, changed FROM shop.orders_outbox_audit ORDER BY started_at"
        )
    assert [tuple(each) for each in audit] == [("replay", "ada", 1), ("discard", "ada", 1)]


async def test_relays_of_every_kind_work_with_the_relays_grants(cast: Cast) -> None:
    for single_active in (True, False):
        for on_published in ("mark", "delete"):
            await enqueue(cast, *range(5), key="k")
            picky = Picky()
            settings = QUICK_POSTGRES | {"single_active": single_active, "on_published": on_published}
            assert await Relay(cast.dsn("relay"), table=TABLE, dispatcher=picky, **settings).drain() == 5
            assert sorted(picky.arrived) == list(range(5))


async def test_the_migrator_goes_back_and_upgrades_while_the_others_work(cast: Cast) -> None:
    async with cast.session("migrator") as migrator:
        await schema.downgrade(migrator, TABLE, to=2)
        await enqueue(cast, "good")
        await schema.upgrade(migrator, TABLE)
        assert (await schema.verify(migrator, TABLE)).differences == ()
        # The audit was dropped and made anew: whoever changes the schema grants again.
        await migrator.execute(
            schema.roles(TABLE, viewer=cast.role("viewer"), operator=cast.role("operator"))
        )
    await enqueue(cast, "good")
    assert await Relay(cast.dsn("relay"), table=TABLE, dispatcher=Picky(), **QUICK_POSTGRES).drain() == 2


async def test_nobody_does_the_work_of_another(cast: Cast) -> None:
    for part in ("producer", "viewer", "operator"):
        relay = Relay(cast.dsn(part), table=TABLE, dispatcher=Picky(), **QUICK_POSTGRES)
        with pytest.raises(PermissionDenied, match=r"; it lacks .+ ON shop"):
            await relay.start()
    for part in ("relay", "viewer", "operator"):
        async with cast.session(part) as session:
            with pytest.raises(PermissionDenied):
                async with session.transaction():
                    await Outbox(TABLE).enqueue(session, Message(TOPIC, "good"))
    for part in ("producer", "relay", "viewer", "operator"):
        async with cast.session(part) as session:
            with pytest.raises((PermissionDenied, SchemaError)):
                await schema.downgrade(session, TABLE, to=2)
            with pytest.raises(PermissionDenied):
                await schema.create(session, "shop.other_outbox")
    for part in ("producer", "relay", "viewer"):
        async with PostgresAdminStore.connect(cast.dsn(part), TABLE) as admin_store:
            letters = DeadLetters(admin_store, TABLE)
            with pytest.raises(PermissionDenied):
                await letters.replay(await letters.plan(Filter(everything=True)), **BECAUSE)


async def test_a_relay_that_lacks_grants_names_them_when_it_starts(cast: Cast) -> None:
    lacks = (
        "DELETE ON shop.orders_outbox",
        "SELECT ON shop.orders_outbox",
        "UPDATE (attempts, dead_at) ON shop.orders_outbox",
        "UPDATE (term) ON shop.outbox_leader",
        "SELECT ON shop.outbox_leader",
        "USAGE ON SCHEMA shop",
    )
    async with cast.session("migrator") as migrator:
        for grant in lacks:
            await migrator.execute(f"REVOKE {grant} FROM {cast.role('relay')}")
            with pytest.raises(PermissionDenied) as raised:  # noqa: PT012 - says which one was missing
                await Relay(cast.dsn("relay"), table=TABLE, dispatcher=Picky(), **QUICK_POSTGRES).drain()
                pytest.fail(f"started without {grant}")
            assert raised.value.missing == (grant,)
            assert str(raised.value).endswith(f"; it lacks {grant}")
            await migrator.execute(f"GRANT {grant} TO {cast.role('relay')}")
    assert await Relay(cast.dsn("relay"), table=TABLE, dispatcher=Picky(), **QUICK_POSTGRES).drain() == 0

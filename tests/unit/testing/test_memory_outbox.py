"""The in-memory outbox: it behaves like the real one, remembers, and says clearly what was otherwise."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from unittest.mock import AsyncMock, create_autospec
from uuid import UUID, uuid4

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from outbox_core.errors import (
    ConfigError,
    EventIdConflict,
    MessageTooLarge,
    NotInTransaction,
    PermanentError,
    UnsupportedTransaction,
)
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.stores.memory import MemoryStore
from outbox_core.testing import MemoryOutbox, VirtualClock, matching

pytestmark = pytest.mark.asyncio
TOPIC = "shop.order.placed.v1"


async def fill(outbox: Outbox, tx: object) -> None:
    await outbox.enqueue(tx, Message(TOPIC, {"order": 7, "total": Decimal("12.50")}, key="order-7"))
    await outbox.enqueue_many(
        tx,
        [
            Message("shop.order.paid.v1", {"order": 7}, headers={"x-source": "till", "x-other": "1"}),
            Message("mail.letter.asked.v1", body=b"\x00", content_type="application/avro"),
        ],
    )


async def test_sees_what_was_committed_in_order() -> None:
    outbox = MemoryOutbox()
    async with outbox.transaction() as tx:
        await fill(outbox, tx)
        assert outbox.enqueued() == []
    assert [message.topic for message in outbox.enqueued()] == [
        TOPIC,
        "shop.order.paid.v1",
        "mail.letter.asked.v1",
    ]
    assert [message.payload for message in outbox.enqueued("shop.**")] == [
        {"order": 7, "total": "12.50"},
        {"order": 7},
    ]
    (letter,) = outbox.enqueued("mail.**")
    assert (letter.payload, letter.content_type, letter.headers) == (b"\x00", "application/avro", {})
    assert outbox.published() == []


async def test_a_rolled_back_transaction_leaves_nothing() -> None:
    outbox = MemoryOutbox()

    async def order() -> None:
        async with outbox.transaction() as tx:
            await fill(outbox, tx)
            raise RuntimeError("sold out")

    with pytest.raises(RuntimeError, match="sold out"):
        await order()
    outbox.assert_not_enqueued()


async def test_any_double_of_a_session_will_do() -> None:
    outbox = MemoryOutbox()
    for session in (AsyncMock(), create_autospec(AsyncSession, instance=True), object.__new__(_Fake)):
        await fill(outbox, session)
    outbox.assert_enqueued(TOPIC, times=3)
    assert await outbox.count(_Fake(), state="pending") == 9
    assert len(await outbox.pending(_Fake(), limit=2)) == 2
    event_id = outbox.enqueued()[0].event_id
    row = await outbox.get(_Fake(), event_id, payload=True)
    assert row is not None
    assert row.payload == b'{"order":7,"total":"12.50"}'


class _Fake:
    pass


async def test_reads_back_inside_its_own_transaction() -> None:
    outbox = MemoryOutbox()
    async with outbox.transaction() as tx:
        await fill(outbox, tx)
        assert await outbox.count(tx) == 3
        (first, *_) = await outbox.pending(tx)
        assert await outbox.get(tx, first.event_id) == first


async def test_what_the_real_one_refuses_is_refused() -> None:
    outbox = MemoryOutbox(max_bytes=10)
    with pytest.raises(MessageTooLarge):
        await outbox.enqueue(_Fake(), Message(TOPIC, "x" * 20))
    engine: AsyncEngine = create_async_engine("postgresql+asyncpg://nowhere")
    with pytest.raises(UnsupportedTransaction, match="pass the AsyncConnection of"):
        await outbox.enqueue(engine, Message(TOPIC, 1))
    with pytest.raises(UnsupportedTransaction, match="NoneType"):
        await outbox.enqueue(None, Message(TOPIC, 1))
    with pytest.raises(UnsupportedTransaction, match="acquire a connection"):
        await outbox.enqueue(object.__new__(asyncpg.Pool), Message(TOPIC, 1))
    event_id = uuid4()
    await outbox.enqueue(_Fake(), Message(TOPIC, 1, event_id=event_id))
    with pytest.raises(EventIdConflict):
        await outbox.enqueue(_Fake(), Message(TOPIC, 2, event_id=event_id))
    async with outbox.transaction() as tx:
        pass
    with pytest.raises(NotInTransaction):
        await outbox.enqueue(tx, Message(TOPIC, 1))
    outbox.assert_enqueued(payload=1)


async def test_a_driver_s_connection_outside_a_transaction_is_refused() -> None:
    class Idle(asyncpg.Connection):
        def __init__(self) -> None:
            pass

        def __del__(self) -> None:
            pass

        def is_closed(self) -> bool:
            return False

        def is_in_transaction(self) -> bool:
            return False

    outbox = MemoryOutbox()
    with pytest.raises(NotInTransaction, match="Begin a transaction first"):
        await outbox.enqueue(Idle(), Message(TOPIC, 1))
    await outbox.enqueue(Idle(), Message(TOPIC, 1), allow_autocommit=True)
    outbox.assert_enqueued(TOPIC)


async def test_a_transaction_of_another_store_is_that_store_s() -> None:
    outbox, store = MemoryOutbox(), MemoryStore()
    async with store.transaction() as tx:
        await outbox.enqueue(tx, Message(TOPIC, 1))
    outbox.assert_not_enqueued()


async def test_assertions_pass_and_return_the_first() -> None:
    outbox = MemoryOutbox()
    tenant = uuid4()
    await fill(outbox, _Fake())
    await outbox.enqueue(_Fake(), Message(TOPIC, {"order": 8}, tenant_id=tenant))
    first = outbox.assert_enqueued(TOPIC, times=2)
    assert first.sequence == 1
    assert outbox.assert_enqueued("shop.*.placed.v1", payload=matching(order=8)).tenant_id == tenant
    outbox.assert_enqueued(payload={"order": 7, "total": Decimal("12.50")}, key="order-7")
    outbox.assert_enqueued(headers={"x-source": "till"})
    outbox.assert_enqueued(payload=b"\x00", key=None)
    outbox.assert_enqueued(tenant_id=tenant)
    outbox.assert_enqueued(event_id=first.event_id)
    outbox.assert_enqueued("shop.**", times=None)
    outbox.assert_not_enqueued(TOPIC, payload={"order": 7})
    outbox.assert_not_enqueued("mail.**", key="x")


async def test_a_failed_assertion_shows_what_there_is() -> None:
    outbox = MemoryOutbox()
    with pytest.raises(AssertionError) as raised:
        outbox.assert_enqueued(TOPIC)
    assert str(raised.value) == (
        "expected 1 message enqueued with topic='shop.order.placed.v1', found 0\nnothing was enqueued"
    )
    await fill(outbox, _Fake())
    with pytest.raises(AssertionError) as raised:
        outbox.assert_enqueued("shop.**", payload=matching(order=9), key="k", times=None)
    assert str(raised.value) == (
        "expected at least 1 message enqueued with topic='shop.**', payload=matching({'order': 9}), key='k', found 0\n"
        "enqueued:\n"
        "  1. shop.order.placed.v1 {'order': 7, 'total': '12.50'} key='order-7'\n"
        "  2. shop.order.paid.v1 {'order': 7} headers={'x-source': 'till', 'x-other': '1'}\n"
        "  3. mail.letter.asked.v1 b'\\x00'"
    )
    with pytest.raises(AssertionError, match=r"expected 2 messages enqueued .*, found 1"):
        outbox.assert_enqueued(TOPIC, times=2)
    with pytest.raises(AssertionError, match=r"expected no message enqueued with topic='mail.\*\*', found 1"):
        outbox.assert_not_enqueued("mail.**")
    with pytest.raises(ConfigError, match="assert_not_enqueued is for none at all"):
        outbox.assert_enqueued(times=0)


async def test_a_failed_assertion_stays_readable() -> None:
    outbox = MemoryOutbox()
    await outbox.enqueue_many(_Fake(), [Message(TOPIC, "x" * 1000) for _ in range(30)])
    with pytest.raises(AssertionError) as raised:
        outbox.assert_enqueued("mail.**")
    lines = str(raised.value).splitlines()
    assert len(lines) == 23
    assert lines[-1] == "  … and 10 more"
    assert max(map(len, lines)) < 300


async def test_draining_delivers_and_shows_what_was_published() -> None:
    outbox = MemoryOutbox()
    await fill(outbox, _Fake())
    delivered = await outbox.drain()
    assert sorted(message.sequence for message in delivered) == [1, 2, 3]
    assert [message.topic for message in outbox.published("shop.**")] == [TOPIC, "shop.order.paid.v1"]
    outbox.assert_published(TOPIC, payload=matching(order=7))
    outbox.dispatcher.assert_published("mail.**", payload=b"\x00")
    assert await outbox.drain() == []
    with pytest.raises(AssertionError, match=r"expected 2 messages published .*, found 1"):
        outbox.assert_published(TOPIC, times=2)


async def test_only_the_clock_makes_delayed_messages_due() -> None:
    clock = VirtualClock()
    outbox = MemoryOutbox(clock=clock)
    await outbox.enqueue(_Fake(), Message("shop.cart.abandoned.v1", 1, delay=timedelta(hours=2)))
    assert await outbox.drain() == []
    clock.advance(hours=1, minutes=59)
    assert await outbox.drain() == []
    clock.advance(minutes=1)
    assert len(await outbox.drain()) == 1


async def test_failures_are_retried_as_the_clock_goes_on_and_die_in_the_end() -> None:
    outbox = MemoryOutbox()
    outbox.dispatcher.fail(RuntimeError("no"), topic="shop.**", times=2)
    outbox.dispatcher.fail(PermanentError("never"), topic="mail.**")
    await outbox.enqueue(_Fake(), Message(TOPIC, 1))
    await outbox.enqueue(_Fake(), Message("mail.letter.asked.v1", 1))
    assert await outbox.drain() == []
    (dead,) = outbox.dead()
    assert dead.topic == "mail.letter.asked.v1"
    assert dead.last_error is not None
    assert dead.last_error.startswith("PROVIDER.PERMANENT")
    outbox.clock.advance(seconds=1)
    assert await outbox.drain() == []
    outbox.clock.advance(seconds=2)
    (delivered,) = await outbox.drain()
    assert (delivered.topic, delivered.attempts) == (TOPIC, 3)
    assert len(outbox.dispatcher.received) == 4


async def test_an_outage_costs_no_attempt() -> None:
    outbox = MemoryOutbox()
    outbox.dispatcher.go_down()
    await outbox.enqueue(_Fake(), Message(TOPIC, 1))
    for _ in range(5):
        assert await outbox.drain(max_attempts=2) == []
        outbox.clock.advance(minutes=2)
    outbox.dispatcher.come_up()
    (delivered,) = await outbox.drain(max_attempts=2)
    assert delivered.attempts == 1


async def test_keys_keep_their_order() -> None:
    outbox = MemoryOutbox()
    await outbox.enqueue_many(_Fake(), [Message(TOPIC, n, key=f"k{n % 3}") for n in range(30)])
    delivered = await outbox.drain()
    for key in ("k0", "k1", "k2"):
        payloads = [message.payload for message in delivered if message.key == key]
        assert payloads == sorted(payloads)
        assert len(payloads) == 10


async def test_clearing_forgets_messages_and_keeps_scripts() -> None:
    outbox = MemoryOutbox()
    outbox.dispatcher.fail(PermanentError("never"), topic="mail.**")
    await fill(outbox, _Fake())
    await outbox.drain()
    outbox.clear()
    outbox.assert_not_enqueued()
    assert outbox.dispatcher.received == []
    sequence = await outbox.enqueue(_Fake(), Message("mail.letter.asked.v1", 1))
    assert sequence == 4
    await outbox.drain()
    assert len(outbox.dead("mail.**")) == 1


async def test_is_an_outbox_with_its_options() -> None:
    outbox = MemoryOutbox("shop.orders_outbox", strict_topics=True, encode=lambda payload: f'"<{payload}>"')
    assert isinstance(outbox, Outbox)
    assert str(outbox.table) == "shop.orders_outbox"
    with pytest.raises(ValueError, match="four parts"):
        await outbox.enqueue(_Fake(), Message("short.v1", 1))
    await outbox.enqueue(_Fake(), Message(TOPIC, UUID(int=1)))
    outbox.assert_enqueued(payload=f"<{UUID(int=1)}>")

"""What is as large as it may be goes all the way; what is larger, or a flood, hurts nobody else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outbox_core.errors import InvalidHeader, InvalidKey, InvalidTopic, MessageTooLarge
from outbox_core.headers import MAX_HEADERS, MAX_HEADERS_BYTES
from outbox_core.message import MAX_KEY_BYTES, Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import DEFAULT_MAX_BYTES
from outbox_core.topic import MAX_TOPIC_CHARACTERS
from tests.integration.relay.bench import Bench, prepared
from tests.kit.gates import ignore
from tests.kit.waiting import until
from tests.services.postgres import Database

pytestmark = [pytest.mark.asyncio, pytest.mark.store]


@pytest_asyncio.fixture
async def bench(database: Database) -> AsyncIterator[Bench]:
    async with prepared(database) as bench:
        yield bench


async def test_the_largest_message_there_may_be_is_delivered_as_it_was(bench: Bench) -> None:
    names = [f"x-{number:03}" for number in range(MAX_HEADERS)]
    value = "é" * ((MAX_HEADERS_BYTES // MAX_HEADERS - len(names[0])) // 2)
    headers = dict.fromkeys(names, value)
    in_headers = len(str(headers).replace(" ", "").encode())
    largest = Message(
        "t" * MAX_TOPIC_CHARACTERS,
        "p" * (DEFAULT_MAX_BYTES - in_headers - 2),
        key="é" * (MAX_KEY_BYTES // 2),
        headers=headers,
    )
    arrived: list[DispatchedMessage] = []

    async def keep(message: DispatchedMessage) -> None:
        arrived.append(message)

    async with bench.connection.transaction():
        await bench.outbox.enqueue(bench.connection, largest)
    assert await bench.relay(keep).drain() == 1
    (message,) = arrived
    assert message.json() == largest.payload
    assert (message.meta.topic, message.meta.key, message.meta.headers) == (
        largest.topic,
        largest.key,
        headers,
    )


async def test_one_byte_more_is_refused_and_costs_the_transaction_nothing(bench: Bench) -> None:
    async with bench.connection.transaction():
        await bench.outbox.enqueue(bench.connection, Message("a.b", "fits"))
        with pytest.raises(MessageTooLarge):
            await bench.outbox.enqueue(bench.connection, Message("a.b", "p" * (DEFAULT_MAX_BYTES - 1)))
        with pytest.raises(MessageTooLarge):
            await bench.outbox.enqueue_many(
                bench.connection, [Message("a.b", 1), Message("a.b", "p" * DEFAULT_MAX_BYTES)]
            )
    assert await bench.states() == {"pending": 1}
    with pytest.raises(InvalidTopic):
        Message("t" * (MAX_TOPIC_CHARACTERS + 1), 1)
    with pytest.raises(InvalidKey):
        Message("a.b", 1, key="é" * (MAX_KEY_BYTES // 2) + "k")
    for headers in (
        {f"x-{number}": "" for number in range(MAX_HEADERS + 1)},
        {"x": "v" * MAX_HEADERS_BYTES},
    ):
        with pytest.raises(InvalidHeader):
            Message("a.b", 1, headers=headers)


async def test_large_messages_are_claimed_a_few_at_a_time(bench: Bench) -> None:
    at_once: list[int] = []

    class Counting:
        async def dispatch_many(
            self, messages: list[DispatchedMessage], *, deadline: float
        ) -> list[BaseException | None]:
            at_once.append(sum(len(message.payload) for message in messages))
            return [None] * len(messages)

        async def dispatch(self, message: DispatchedMessage, /) -> None:
            at_once.append(len(message.payload))

    await bench.enqueue(*("p" * 100_000 for _ in range(20)))
    assert await bench.relay(Counting(), batch_bytes=250_000).drain() == 20
    assert max(at_once) <= 3 * 250_000
    assert len(at_once) > 1


async def test_a_flood_of_notifications_delays_nothing_and_ends_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may connect may notify: garbage, names of other tables, and the right name again and again."""
    caplog.set_level(logging.WARNING)
    async with bench.relay(ignore, poll_interval=30.0) as relay:
        await until(lambda: relay.health().ready)
        for _ in range(10):
            await bench.connection.execute(
                """
                SELECT pg_notify('outbox', repeat(chr(1 + number % 120), number % 7000)),
                    pg_notify('outbox', 'shop.other_' || number), pg_notify('outbox', 'shop.orders_outbox; DROP'),
                    pg_notify('outbox', 'shop.orders_outbox')
                FROM generate_series(1, 500) AS number
                """
            )
            await bench.enqueue("between")
        assert await bench.settled(15) == {"published": 10}
        assert relay.health().live
    assert caplog.records == []

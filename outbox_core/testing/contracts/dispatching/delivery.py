"""What goes in comes out: content, headers, key and order, and an acknowledgement that means stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outbox_core.errors import BrokerUnavailable, PermanentError
from outbox_core.testing.contracts.contract import Contract, needs
from outbox_core.testing.contracts.driving import dispatch, expect, failure_of, opened
from outbox_core.testing.contracts.samples import again, sample, samples

if TYPE_CHECKING:
    from outbox_core.dispatcher import Dispatcher
    from outbox_core.meta import DispatchedMessage
    from outbox_core.testing.contracts.broker import Broker

LARGE = 500_000


class DeliveryContract(Contract):
    """One message at a time."""

    async def test_a_json_payload_comes_back_as_it_was_sent(self, broker: Broker) -> None:
        await _round_trip(broker, sample(broker.topic, b'{"price": "9.90", "tags": ["a", null, 1e3]}'))

    async def test_text_in_every_script_comes_back_as_it_was_sent(self, broker: Broker) -> None:
        await _round_trip(broker, sample(broker.topic, '{"name": "Zoë 東京 🚚 \\u0007"}'.encode()))

    async def test_a_body_of_bytes_comes_back_untouched(self, broker: Broker) -> None:
        content = bytes(range(256)) * 4
        await _round_trip(broker, sample(broker.topic, content, content_type="application/avro"))

    async def test_an_empty_body_comes_back_empty(self, broker: Broker) -> None:
        await _round_trip(broker, sample(broker.topic, b"", content_type="application/octet-stream"))

    async def test_500_kilobytes_come_back(self, broker: Broker) -> None:
        text = b'{"text": "' + b"x" * (LARGE - 12) + b'"}'
        await _round_trip(broker, sample(broker.topic, text))

    async def test_headers_key_and_trace_come_back(self, broker: Broker) -> None:
        message = sample(
            broker.topic,
            key="Bestellung-№ 7",
            headers={"X-Region": "eu", "x-city": "Zürich 東京", "x-empty": "", "x-sign": "a=b; c,d: é"},
            sequence=2**62,
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            tracestate="vendor=value",
        )
        await _round_trip(broker, message)

    async def test_a_repeat_is_acknowledged_too(self, broker: Broker) -> None:
        message = sample(broker.topic)
        async with opened(broker) as dispatcher:
            await dispatch(dispatcher, message)
            await dispatch(dispatcher, again(message))
        stored = {one.meta.event_id for one in await broker.stored()}
        expect(stored == {message.meta.event_id}, f"stored were {stored}, sent was {message.meta.event_id}")

    async def test_acknowledged_means_stored(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            for number, message in enumerate(samples(broker.topic, 5), start=1):
                await dispatch(dispatcher, message)
                stored = await broker.stored()
                expect(
                    len(stored) == number and stored[-1] == message,
                    f"message {number} was acknowledged, and another client found {len(stored)} messages",
                )

    @needs(lambda capabilities: capabilities.keeps_key_order)
    async def test_messages_of_a_key_keep_their_order(self, broker: Broker) -> None:
        messages = samples(broker.topic, 60, keys=3)
        async with opened(broker) as dispatcher:
            for message in messages:
                await dispatch(dispatcher, message)
        stored = await broker.stored()
        for key in ("key-0", "key-1", "key-2"):
            expect(
                _sequences(stored, key) == _sequences(messages, key),
                f"{key} was sent in the order {_sequences(messages, key)} and stored in {_sequences(stored, key)}",
            )

    @needs(lambda capabilities: capabilities.max_bytes is not None)
    async def test_a_message_that_is_too_large_is_refused_for_good(self, broker: Broker) -> None:
        large = sample(
            broker.topic, b"x" * ((self.capabilities.max_bytes or 0) + 1), content_type="text/plain"
        )
        async with opened(broker) as dispatcher:
            error = await failure_of(dispatcher, large)
            expect(
                isinstance(error, PermanentError),
                f"{self.capabilities.max_bytes} bytes and one more gave {error!r}, not a PermanentError",
            )
            await _round_trip_on(broker, dispatcher)

    @needs(lambda capabilities: capabilities.refuses_unknown_destinations)
    async def test_an_unknown_destination_fails_that_message_alone(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            error = await failure_of(dispatcher, sample(broker.unknown_topic))
            expect(error is not None, "a message for an unknown destination was acknowledged: it is lost")
            expect(
                not isinstance(error, BrokerUnavailable),
                f"{error!r} says that the broker is away, which stops every other message too",
            )
            await _round_trip_on(broker, dispatcher)

    @needs(lambda capabilities: not capabilities.refuses_unknown_destinations)
    async def test_an_unknown_destination_is_taken_as_declared(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            error = await failure_of(dispatcher, sample(broker.unknown_topic))
            expect(error is None, f"refuses_unknown_destinations is False, and yet it was refused: {error!r}")


async def _round_trip(broker: Broker, message: DispatchedMessage) -> None:
    async with opened(broker) as dispatcher:
        await dispatch(dispatcher, message)
    stored = list(await broker.stored())
    expect(len(stored) == 1, f"one message was sent and {len(stored)} are stored")
    for name in ("payload", "content_type", "meta"):
        sent, got = getattr(message, name), getattr(stored[0], name)
        expect(sent == got, f"the {name} was {str(sent)[:200]} and came back as {str(got)[:200]}")
    expect(stored[0] == message, f"{message.meta.headers} came back as {stored[0].meta.headers}")


async def _round_trip_on(broker: Broker, dispatcher: Dispatcher) -> None:
    """What came before has not broken the dispatcher."""
    message = sample(broker.topic)
    await dispatch(dispatcher, message)
    expect(list(await broker.stored()) == [message], "the message after the refused one is not stored alone")


def _sequences(messages: Sequence[DispatchedMessage], key: str) -> list[int]:
    return [message.meta.sequence for message in messages if message.meta.key == key]

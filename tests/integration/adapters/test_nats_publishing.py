"""Messages on a real NATS server, and the outcomes of the server's refusals."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import pytest
import pytest_asyncio
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig

from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.dispatcher import BatchDispatcher, Probing, name_of
from outbox_core.errors import (
    DispatchTimeout,
    NotAnOutboxMessage,
    PermanentError,
    ProviderError,
)
from outbox_core.testing.contracts.samples import sample, samples
from outbox_nats import NatsDispatcher, from_msg
from tests.integration.adapters.driving import failure
from tests.services.nats import NatsServer

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    """The tests' own client."""
    client = Client()
    await client.connect(nats_server.address)
    yield client
    await client.close()


@pytest_asyncio.fixture
async def stream(client: Client, unique_name: str) -> str:
    """A stream with the test's name, which stores every subject below that name."""
    await client.jetstream().add_stream(name=unique_name, subjects=[f"{unique_name}.>"])
    return unique_name


async def last(client: Client, stream: str) -> Msg:
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.LAST)
    subscription = await client.jetstream().pull_subscribe("", stream=stream, config=config)
    (msg,) = await subscription.fetch(1, timeout=5)
    await subscription.unsubscribe()
    return msg


async def count(client: Client, stream: str) -> int:
    return (await client.jetstream().stream_info(stream)).state.messages


async def test_the_dispatcher_has_windows_probes_and_a_name(nats_server: NatsServer) -> None:
    dispatcher = NatsDispatcher.from_url(nats_server.address)

    assert isinstance(dispatcher, BatchDispatcher)
    assert isinstance(dispatcher, Probing)
    assert name_of(dispatcher) == nats_server.address
    assert repr(dispatcher) == f"<NatsDispatcher {nats_server.address}>"


async def test_the_message_id_is_the_event_id_until_a_replay(
    nats_server: NatsServer, client: Client, stream: str
) -> None:
    message = sample(f"{stream}.order.placed.v1", key="7")
    replayed = replace(message, meta=replace(message.meta, replays=2))
    async with NatsDispatcher(url=nats_server.address) as dispatcher:
        await dispatcher.dispatch(message)
        first = await last(client, stream)
        await dispatcher.dispatch(message)
        assert (await count(client, stream), dispatcher.duplicates) == (1, 1)
        await dispatcher.dispatch(replayed)
        second = await last(client, stream)

    assert first.subject == message.meta.topic
    assert (first.headers or {})["Nats-Msg-Id"] == str(message.meta.event_id)
    assert (second.headers or {})["Nats-Msg-Id"] == f"{message.meta.event_id}:r2"
    assert (from_msg(first), from_msg(second)) == (message, replayed)


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b'{"price": 1.10, "big": 123456789012345678901234567890}', "application/json"),
        (b"[1,  2]", "application/vnd.shop+json"),
        (b"not json", "application/json"),
        (bytes(range(256)), "application/avro"),
        (b"", "application/octet-stream"),
    ],
)
async def test_cloud_events_are_read_back_as_they_were_dispatched(
    nats_server: NatsServer, client: Client, stream: str, mode: str, payload: bytes, content_type: str
) -> None:
    message = sample(
        f"{stream}.order.placed.v1",
        payload,
        content_type=content_type,
        key='Bestellung № 7 100% "é"',
        headers={"x-city": "Zürich"},
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    async with NatsDispatcher.from_url(f"{nats_server.address}?cloud_events={mode}") as dispatcher:
        await dispatcher.dispatch(message)

    assert from_msg(await last(client, stream)) == message


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_the_official_package_reads_our_cloud_events(
    nats_server: NatsServer, client: Client, stream: str, mode: str
) -> None:
    message = sample(f"{stream}.order.placed.v1", b'{"number": 7}', key="№ 7")
    events = CloudEvents("binary" if mode == "binary" else "structured", source="/shop/orders")
    async with NatsDispatcher(url=nats_server.address, cloud_events=events) as dispatcher:
        await dispatcher.dispatch(message)

    received = await last(client, stream)
    event = from_http_event(HTTPMessage(received.headers or {}, received.data))

    assert event.get_id() == str(message.meta.event_id)
    assert event.get_type() == message.meta.topic
    assert event.get_source() == "/shop/orders"
    assert event.get_specversion() == "1.0"
    assert event.get_time() == message.meta.created_at
    assert event.get_datacontenttype() == "application/json"
    assert event.get_data() == {"number": 7}
    assert event.get_extension("partitionkey") == "№ 7"
    assert isinstance(event.get_time(), datetime)


@pytest.mark.parametrize("headers", [None, {"x": "y"}, {"ce-specversion": "1.0"}, {"ce-specversion": "9"}])
async def test_a_message_from_another_producer_is_refused(
    client: Client, headers: dict[str, str] | None
) -> None:
    with pytest.raises(NotAnOutboxMessage):
        from_msg(Msg(client, data=b"{}", headers=headers))


async def test_a_broken_structured_event_is_refused(client: Client) -> None:
    for body in (b"", b"[]", b"{", b'{"specversion":"1.0","data_base64":"*"}', b"\xff"):
        with pytest.raises(NotAnOutboxMessage):
            from_msg(Msg(client, data=body, headers={"content-type": "application/cloudevents+json"}))
    with pytest.raises(NotAnOutboxMessage, match="only \\+json can be read"):
        from_msg(Msg(client, data=b"[]", headers={"content-type": "application/cloudevents-batch+json"}))


async def test_destinations_by_pattern_by_function_and_by_default(
    nats_server: NatsServer, client: Client, stream: str
) -> None:
    mapping = {"orders.**": f"{stream}.orders", "bills.*.v1": f"{stream}.bills"}
    async with NatsDispatcher(
        url=nats_server.address, destinations=mapping, default_destination=f"{stream}.rest"
    ) as dispatcher:
        for topic, subject in (
            ("orders.placed.v1", "orders"),
            ("bills.a.v1", "bills"),
            ("bills.a.b", "rest"),
        ):
            await dispatcher.dispatch(sample(topic))
            assert (await last(client, stream)).subject == f"{stream}.{subject}"
    async with NatsDispatcher(
        url=nats_server.address, destinations=lambda topic: f"{stream}.x.{topic}"
    ) as dispatcher:
        await dispatcher.dispatch(sample("a.b"))
        assert (await last(client, stream)).subject == f"{stream}.x.a.b"


async def test_an_invalid_destination_fails_only_its_own_message(
    nats_server: NatsServer, client: Client, stream: str
) -> None:
    def subject(topic: str) -> str:
        answers: dict[str, object] = {"b": "two words", "c": None, "d": f"{stream}.*", "e": "$JS.API.INFO"}
        if topic == "f":
            raise LookupError("no such table")
        return answers.get(topic, f"{stream}.{topic}")  # type: ignore[return-value]

    async with NatsDispatcher(url=nats_server.address, destinations=subject) as dispatcher:
        outcomes = await dispatcher.dispatch_many(
            [sample(topic) for topic in "abcdefg"], deadline=asyncio.get_running_loop().time() + 10
        )

    assert (outcomes[0], outcomes[6]) == (None, None)
    for outcome, named in zip(
        outcomes[1:5], ("'two words'", "None", f"'{stream}.*'", "'$JS.API.INFO'"), strict=True
    ):
        assert isinstance(outcome, PermanentError)
        assert f"invalid destination {named}" in str(outcome)
    assert isinstance(outcomes[5], ProviderError)
    assert not isinstance(outcomes[5], PermanentError)
    assert "LookupError for the topic 'f': no such table" in str(outcomes[5])
    assert await count(client, stream) == 2


async def test_a_topic_without_a_destination_is_refused_permanently(nats_server: NatsServer) -> None:
    async with NatsDispatcher(url=nats_server.address, destinations={"a.**": "a"}) as dispatcher:
        error = await failure(dispatcher, sample("b.c"))

    assert isinstance(error, PermanentError)
    assert "'b.c' has no destination" in str(error)


async def test_a_missing_stream_is_retried_with_a_clear_reason(
    nats_server: NatsServer, unique_name: str
) -> None:
    async with NatsDispatcher(url=nats_server.address) as dispatcher:
        error = await failure(dispatcher, sample(unique_name))

    assert type(error) is ProviderError
    assert f"no JetStream stream stores the subject '{unique_name}'" in str(error)


async def test_another_stream_than_the_expected_one_is_not_a_delivery(
    nats_server: NatsServer, client: Client, stream: str
) -> None:
    async with NatsDispatcher.from_url(f"{nats_server.address}?stream=OTHER") as dispatcher:
        error = await failure(dispatcher, sample(f"{stream}.a"))

    assert type(error) is ProviderError
    assert "does not belong to the stream 'OTHER'" in str(error)
    assert await count(client, stream) == 0


async def test_an_answer_that_is_not_an_acknowledgement_is_not_a_delivery(
    nats_server: NatsServer, client: Client, unique_name: str
) -> None:
    answers = [b"thanks", b"{}", b'{"stream": "", "seq": 0}', b"[1]", b'"text"']

    async def answer(msg: Msg) -> None:
        await msg.respond(answers.pop(0))

    await client.subscribe(unique_name, cb=answer)
    await client.flush()
    async with NatsDispatcher(url=nats_server.address) as dispatcher:
        while answers:
            error = await failure(dispatcher, sample(unique_name))
            assert type(error) is ProviderError
            assert "not a stream's acknowledgement" in str(error)


async def test_headers_count_towards_the_size(nats_server: NatsServer, client: Client, stream: str) -> None:
    """The server would close the connection for every message: nats-py itself checks only the payload."""
    fits = client.max_payload - 100
    async with NatsDispatcher(url=nats_server.address) as dispatcher:
        outcomes = await dispatcher.dispatch_many(
            [sample(f"{stream}.a", b"x" * fits, content_type="text/plain"), sample(f"{stream}.a")],
            deadline=asyncio.get_running_loop().time() + 10,
        )

    assert isinstance(outcomes[0], PermanentError)
    assert f"the server takes {client.max_payload}" in str(outcomes[0])
    assert outcomes[1] is None


async def test_a_message_too_large_for_the_stream_fails_permanently(
    nats_server: NatsServer, client: Client, unique_name: str
) -> None:
    config = StreamConfig(name=unique_name, subjects=[unique_name], max_msg_size=2_000)
    await client.jetstream().add_stream(config)
    async with NatsDispatcher(url=nats_server.address) as dispatcher:
        error = await failure(dispatcher, sample(unique_name, b"x" * 2_000, content_type="text/plain"))
        await dispatcher.dispatch(sample(unique_name))

    assert isinstance(error, PermanentError)


async def test_a_full_stream_is_retried(nats_server: NatsServer, client: Client, unique_name: str) -> None:
    """The server's error is the outcome at once; the future of nats-py's `publish_async` would wait for ever."""
    config = {"name": unique_name, "subjects": [unique_name], "max_msgs": 1, "discard": "new"}
    await client.request(f"$JS.API.STREAM.CREATE.{unique_name}", json.dumps(config).encode(), timeout=5)
    async with NatsDispatcher(url=nats_server.address) as dispatcher:
        await dispatcher.dispatch(sample(unique_name))
        error = await failure(dispatcher, sample(unique_name))

    assert type(error) is ProviderError
    assert "maximum messages exceeded" in str(error)


@pytest.mark.parametrize(
    "headers", [{"x": "a\r\nNats-Rollup: all"}, {"x": " a "}, {"Nats-Rollup": "all"}, {"a b": "c"}]
)
async def test_headers_that_the_client_would_rewrite_are_refused(
    nats_server: NatsServer, client: Client, stream: str, headers: dict[str, str]
) -> None:
    async with NatsDispatcher(url=nats_server.address) as dispatcher:
        error = await failure(dispatcher, sample(f"{stream}.a", headers=headers))
        key = await failure(dispatcher, sample(f"{stream}.a", key="a\nb"))

    assert isinstance(error, PermanentError)
    assert "the header 'key' has the control character U+000A" in str(key)
    assert await count(client, stream) == 0


async def test_the_applications_own_client_is_used_and_not_closed(
    client: Client, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = sample(f"{stream}.a")
    with caplog.at_level(logging.WARNING):
        async with NatsDispatcher(client=client) as dispatcher:
            await dispatcher.dispatch(message)
            await dispatcher.probe()
            outcomes = await dispatcher.dispatch_many(samples(f"{stream}.a", 3), deadline=0)

    assert [type(outcome) for outcome in outcomes] == [DispatchTimeout] * 3
    assert client.is_connected
    assert from_msg(await last(client, stream)) == message
    assert not caplog.records

"""Addresses of brokers."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from yarl import URL

from outbox_amqp.address import AmqpAddress
from outbox_core.dispatcher import load_dispatcher
from outbox_core.errors import InvalidUrl, OutboxError
from outbox_core.url import DispatcherUrl
from outbox_kafka.address import KafkaAddress
from outbox_nats.address import NatsAddress
from tests.fuzz.hostile import SECRET, assert_secretive, fuzzed, spoilt, texts

GOOD = (
    "kafka://host",
    f"kafka://user:{SECRET}@a:9092,b:9093?client_id=x&sasl_mechanism=PLAIN",
    f"kafka+ssl://user:{SECRET}@[::1]:9092",
    f"nats://{SECRET}@a:4222",
    f"nats+tls://user:{SECRET}@a,b?stream=ORDERS&cloud_events=binary",
    f"amqp://user:{SECRET}@host:5672/shop%2Fa?exchange=orders",
    "amqps://host/?cloud_events=structured",
)
ADDRESSES = (KafkaAddress, NatsAddress, AmqpAddress)
parts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@fuzzed
@given(st.one_of(texts, spoilt(GOOD)))
@example(f"amqp://user:{SECRET}@host:{'9' * 5000}")
@example(f"kafka://user:{SECRET}@a" + ",a" * 5000)
def test_any_text_is_read_or_refused_as_invalid(text: str) -> None:
    try:
        url = DispatcherUrl.parse(text)
    except InvalidUrl as refused:
        if SECRET in text:
            assert_secretive(refused)
    else:
        assert url.hosts
        assert DispatcherUrl.parse(url) is url
        if url.password is not None and SECRET in url.password:
            assert_secretive(url)
    for kind in ADDRESSES:
        try:
            address = kind.parse(text)
        except InvalidUrl as refused:
            if SECRET in text:
                assert_secretive(refused)
        else:
            if address.password is not None and SECRET in address.password:
                assert_secretive(address.name)
                assert_secretive(repr(address))


@fuzzed
@given(user=parts, password=parts, path=parts, name=parts, value=parts)
def test_what_is_percent_encoded_comes_back(
    user: str, password: str, path: str, name: str, value: str
) -> None:
    user, password, path = (quote(each, safe="") for each in (user, password, path))
    text = f"amqp://{user}:{password}@host:1/{path}?{quote(name, safe='')}={quote(value, safe='')}"
    url = DispatcherUrl.parse(text)

    assert [quote(each or "", safe="") for each in (url.username, url.password, url.path)] == [
        user,
        password,
        path,
    ]
    assert url.options == {name: value}


@fuzzed
@given(user=parts, password=parts, virtual_host=parts)
def test_the_amqp_client_logs_in_as_whom_the_address_says(
    user: str, password: str, virtual_host: str
) -> None:
    assume(virtual_host not in (".", ".."))
    user, password, virtual_host = (quote(each, safe="") for each in (user, password, virtual_host))
    address = AmqpAddress.parse(f"amqp://{user}:{password}@host/{virtual_host}")
    read = URL(str(address.client_arguments()["url"]))

    assert (read.user, read.password, read.path) == (
        address.username,
        address.password,
        f"/{address.virtual_host}",
    )


@fuzzed
@given(st.one_of(texts, spoilt(GOOD)))
def test_a_dispatcher_is_made_or_refused_by_an_error_of_the_library(text: str) -> None:
    try:
        load_dispatcher(text)
    except OutboxError as refused:
        if SECRET in text:
            assert_secretive(refused)


@pytest.mark.parametrize("kind", [DispatcherUrl, *ADDRESSES])
@pytest.mark.parametrize("value", [None, 7, b"kafka://host", ["kafka://host"], object()])
def test_what_is_no_text_is_refused(kind: type[DispatcherUrl], value: str) -> None:
    with pytest.raises(InvalidUrl, match="expected a str"):
        kind.parse(value)

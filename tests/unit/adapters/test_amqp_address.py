"""AMQP addresses: from a URL to the arguments of aio-pika."""

from __future__ import annotations

import inspect

import aio_pika
import pytest
from aiormq.connection import Connection

from outbox_amqp import AmqpAddress
from outbox_core.errors import InvalidUrl


def test_plain() -> None:
    address = AmqpAddress.parse("amqp://host")
    assert (address.virtual_host, address.exchange) == ("/", "")
    assert address.client_arguments() == {"url": "amqp://host:5672/%2F"}


def test_everything() -> None:
    address = AmqpAddress.parse("amqps://us%40er:p%2Fw@[::1]:5673/sales?exchange=events")
    assert address.exchange == "events"
    assert address.client_arguments() == {"url": "amqps://us%40er:p%2Fw@[::1]:5673/sales"}


def test_tls_has_its_own_default_port() -> None:
    assert AmqpAddress.parse("amqps://host").server == "host:5671"


def test_a_guest_has_the_default_password() -> None:
    address = AmqpAddress.parse("amqp://guest@127.0.0.1/?exchange=events")
    assert address.client_arguments() == {"url": "amqp://guest:guest@127.0.0.1:5672/%2F"}
    assert (address.virtual_host, address.exchange) == ("/", "events")
    assert AmqpAddress.parse("amqp://guest:other@h").password == "other"


@pytest.mark.parametrize(
    ("path", "virtual_host"), [("", "/"), ("/", "/"), ("/%2F", "/"), ("/sales", "sales"), ("/a%2Fb", "a/b")]
)
@pytest.mark.asyncio
async def test_the_client_parses_the_address_as_meant(path: str, virtual_host: str) -> None:
    address = AmqpAddress.parse(f"amqp://us%40er:p%25%2Fw@host:1234{path}")
    assert address.virtual_host == virtual_host
    client = Connection(str(address.client_arguments()["url"]))
    assert client.vhost == virtual_host
    assert (client.url.user, client.url.password) == ("us@er", "p%/w")
    assert (client.url.host, client.url.port) == ("host", 1234)


def test_the_client_knows_every_argument() -> None:
    inspect.signature(aio_pika.connect_robust).bind(**AmqpAddress.parse("amqps://u:p@h").client_arguments())


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("kafka://h", "expected the scheme 'amqp', 'amqps', got 'kafka'"),
        ("amqp://a,b", "it names 2 hosts and the AMQP client takes exactly one"),
        ("amqp://h?heartbeat=1", "unknown option 'heartbeat'; the known ones are 'exchange'"),
        ("amqp://user@h", "the user name has no password"),
    ],
)
def test_refused(url: str, rule: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        AmqpAddress.parse(url)
    assert rule in str(raised.value)


def test_the_password_is_not_shown() -> None:
    assert "s3cr3t" not in repr(AmqpAddress.parse("amqp://u:s3cr3t@h"))

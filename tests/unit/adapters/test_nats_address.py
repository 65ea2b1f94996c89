"""NATS addresses: from a URL to the arguments of nats-py."""

from __future__ import annotations

import inspect
import ssl

import pytest
from nats.aio.client import Client

from outbox_core.errors import InvalidUrl
from outbox_nats import NatsAddress


def test_plain() -> None:
    address = NatsAddress.parse("nats://one,two:4223,[::1]?stream=ORDERS")
    assert address.stream == "ORDERS"
    assert address.client_arguments() == {
        "servers": ["nats://one:4222", "nats://two:4223", "nats://[::1]:4222"],
    }


def test_user_and_password_stay_out_of_the_server_urls() -> None:
    arguments = NatsAddress.parse("nats://us%40er:p%2Fw@h").client_arguments()
    assert arguments == {"servers": ["nats://h:4222"], "user": "us@er", "password": "p/w"}


def test_a_user_alone_is_a_token() -> None:
    assert NatsAddress.parse("nats://t%40k@h").client_arguments() == {
        "servers": ["nats://h:4222"],
        "token": "t@k",
    }


def test_tls_verifies_the_server() -> None:
    arguments = NatsAddress.parse("nats+tls://h").client_arguments()
    assert arguments["servers"] == ["tls://h:4222"]
    context = arguments["tls"]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize("url", ["nats+tls://u:p@h", "nats://token@h"])
def test_the_client_knows_every_argument(url: str) -> None:
    inspect.signature(Client().connect).bind(**NatsAddress.parse(url).client_arguments())


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("tls://h", "expected the scheme 'nats', 'nats+tls', got 'tls'"),
        ("nats://h/orders", "it has a path"),
        ("nats://h?name=1", "unknown option 'name'; the known ones are 'stream'"),
        ("nats://h?stream=", "the option 'stream' is empty"),
    ],
)
def test_refused(url: str, rule: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        NatsAddress.parse(url)
    assert rule in str(raised.value)


@pytest.mark.parametrize("url", ["nats://u:s3cr3t@h", "nats://s3cr3t@h"])
def test_the_password_is_not_shown(url: str) -> None:
    assert "s3cr3t" not in repr(NatsAddress.parse(url))

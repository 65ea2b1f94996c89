"""Kafka addresses: from a URL to the arguments of aiokafka."""

from __future__ import annotations

import inspect
import ssl

import pytest
from aiokafka import AIOKafkaProducer

from outbox_core.errors import InvalidUrl
from outbox_kafka import KafkaAddress


def test_plain() -> None:
    address = KafkaAddress.parse("kafka://one,two:9093,[::1]?client_id=orders")
    assert address.client_arguments() == {
        "bootstrap_servers": "one:9092,two:9093,[::1]:9092",
        "security_protocol": "PLAINTEXT",
        "client_id": "orders",
    }


@pytest.mark.parametrize(
    ("url", "protocol"),
    [
        ("kafka://h", "PLAINTEXT"),
        ("kafka+ssl://h", "SSL"),
        ("kafka://u:p@h", "SASL_PLAINTEXT"),
        ("kafka+ssl://u:p@h", "SASL_SSL"),
    ],
)
def test_security_protocols(url: str, protocol: str) -> None:
    assert KafkaAddress.parse(url).security_protocol == protocol


@pytest.mark.parametrize(
    ("option", "mechanism"), [("", "PLAIN"), ("?sasl_mechanism=SCRAM-SHA-512", "SCRAM-SHA-512")]
)
def test_credentials(option: str, mechanism: str) -> None:
    arguments = KafkaAddress.parse(f"kafka://us%40er:p%2Fw@h{option}").client_arguments()
    assert arguments["sasl_plain_username"] == "us@er"
    assert arguments["sasl_plain_password"] == "p/w"
    assert arguments["sasl_mechanism"] == mechanism


def test_tls_verifies_the_server() -> None:
    context = KafkaAddress.parse("kafka+ssl://h").client_arguments()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_the_client_knows_every_argument() -> None:
    arguments = KafkaAddress.parse("kafka+ssl://u:p@h?client_id=x").client_arguments()
    inspect.signature(AIOKafkaProducer).bind(**arguments)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("nats://h", "expected the scheme 'kafka', 'kafka+ssl', got 'nats'"),
        ("kafka://h/orders", "it has a path"),
        ("kafka://h?acks=1", "unknown option 'acks'; the known ones are 'client_id', 'sasl_mechanism'"),
        ("kafka://user@h", "the user name has no password"),
        ("kafka://h?sasl_mechanism=PLAIN", "needs a user and a password"),
        (
            "kafka://u:p@h?sasl_mechanism=plain",
            "is 'plain' and must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
    ],
)
def test_refused(url: str, rule: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        KafkaAddress.parse(url)
    assert rule in str(raised.value)


def test_the_password_is_not_shown() -> None:
    assert "s3cr3t" not in repr(KafkaAddress.parse("kafka://u:s3cr3t@h"))

"""The log: the extras of lines about messages, and tenants shown, hashed or left out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from outbox_core import observer as events
from outbox_core.errors import ConfigError
from outbox_core.observers.logging import LoggingObserver
from outbox_core.redaction import Masking
from tests.kit.samples import EVENT_ID, TABLE, TENANT, TOPIC, every_event, meta

NAMES = {
    "outbox_table", "outbox_topic", "outbox_event_id", "outbox_tenant_id", "outbox_sequence", "outbox_attempts",
}  # fmt: skip


def extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name.startswith("outbox_")}


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("tests.observers.logging")


def test_lines_about_a_message_have_its_fields(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    observe = LoggingObserver(logger)
    observe(events.Dispatched(TABLE, [meta(), meta()], [0.1, 0.2]))
    observe(events.Dead(TABLE, meta(), "TX.TIMEOUT", 0.1))
    assert len(caplog.records) == 3
    for record in caplog.records:
        assert extras(record) == {
            "outbox_table": "shop.orders_outbox",
            "outbox_topic": TOPIC,
            "outbox_event_id": str(EVENT_ID),
            "outbox_tenant_id": str(TENANT),
            "outbox_sequence": 7,
            "outbox_attempts": 2,
        }


def test_every_line_has_at_least_the_table(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for event in every_event():
        LoggingObserver(logger)(event)
    assert len(caplog.records) == len(every_event()) + 1
    for record in caplog.records:
        assert extras(record)["outbox_table"] == "shop.orders_outbox"
        assert extras(record).keys() <= NAMES


def test_deliveries_cost_nothing_when_nobody_reads_them(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    LoggingObserver(logger)(events.Dispatched(TABLE, [meta()], [0.1]))
    assert caplog.records == []


@pytest.mark.parametrize("tenants", ["hash", "drop"])
def test_a_masked_tenant_stands_in_no_line(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, tenants: Masking
) -> None:
    caplog.set_level(logging.DEBUG)
    observe = LoggingObserver(logger, tenants=tenants)
    for event in every_event():
        observe(event)
    everything = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    # Events whole, as arguments of a line, would show it too.
    assert str(TENANT) not in everything
    assert "CANARY" not in everything
    shown = [extras(record).get("outbox_tenant_id") for record in caplog.records]
    assert any(shown) is (tenants == "hash")


def test_a_secret_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 65 bytes, at most 64 are allowed"):
        LoggingObserver(tenants="hash", secret=b"x" * 65)

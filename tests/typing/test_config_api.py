"""What type checkers see of settings."""

from __future__ import annotations

from typing import assert_type

from outbox_core import Relay, TableName
from outbox_core.cleaner import CleanerSettings
from outbox_core.config import (
    Problem,
    Settings,
    UnknownVariable,
    format_duration,
    parse_duration,
    unknown_variables,
)
from outbox_core.meta import DispatchedMessage
from outbox_core.redaction import Masking
from outbox_core.relay.settings import RelaySettings


async def publish(message: DispatchedMessage) -> None: ...


def test_settings() -> None:
    settings = Settings.from_env({"OUTBOX_RELAY_TABLES": ""})
    assert_type(settings, Settings)
    assert_type(settings.relay, RelaySettings)
    assert_type(settings.cleaner, CleanerSettings)
    assert_type(settings.relay_tables, tuple[TableName, ...])
    assert_type(settings.make_relay(publish), Relay | None)
    assert_type(settings.as_env(), dict[str, str])
    assert_type(Settings.read({}), tuple[Settings, list[Problem]])
    assert_type(settings.logs.tenants, Masking)
    assert_type(unknown_variables({}), list[UnknownVariable])
    assert_type(parse_duration("1s"), float)
    assert_type(format_duration(1.0), str)

"""The types users see, checked by mypy and pyright; running this file as a test proves that the calls are real."""

from __future__ import annotations

from typing import assert_type

import pytest

from outbox_core import OutboxError, TableName
from outbox_core.errors import InvalidTableName, InvalidUrl, MissingExtra
from outbox_core.extras import install_command, needs_extra
from outbox_core.url import DispatcherUrl, Host


def test_table_names() -> None:
    table = assert_type(TableName.parse("billing.orders_outbox"), TableName)
    assert_type(TableName.parse(table), TableName)
    assert_type(table.schema, str)
    assert_type(table.name, str)
    assert_type(table.quoted, str)


def test_errors_carry_what_was_wrong() -> None:
    with pytest.raises(InvalidTableName) as table:
        TableName.parse("Orders")
    assert_type(table.value.value, object)
    assert_type(table.value.rule, str)
    assert_type(table.value.code, str)
    with pytest.raises(InvalidUrl) as url:
        DispatcherUrl.parse("kafka://")
    assert_type(url.value.scheme, str)
    assert_type(url.value.rule, str)
    assert_type(OutboxError.code, str)


def test_missing_extras() -> None:
    error = MissingExtra("metrics", "prometheus-client", "prometheus", install_command("prometheus"))
    assert_type(error.extra, str)
    assert_type(error.command, str)
    with needs_extra("prometheus", feature="metrics") as entered:
        assert_type(entered, None)


def test_urls() -> None:
    url = assert_type(
        DispatcherUrl.parse("nats://token@localhost?stream=ORDERS", schemes=("nats",)), DispatcherUrl
    )
    assert_type(url.hosts, tuple[Host, ...])
    assert_type(url.hosts[0].port, int | None)
    assert_type(url.hosts[0].address(4222), str)
    assert_type(url.password, str | None)
    assert_type(url.take("stream"), dict[str, str])

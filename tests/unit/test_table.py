"""Table names: what is accepted, and that each refusal shows the value and the rule it broke."""

from __future__ import annotations

import pytest

from outbox_core import TableName
from outbox_core.errors import InvalidTableName

CHARACTERS = "may hold only lower-case letters a-z, digits and underscores, and may not begin with a digit"


@pytest.mark.parametrize(
    ("value", "schema", "name"),
    [
        ("orders_outbox", "public", "orders_outbox"),
        ("billing.orders_outbox", "billing", "orders_outbox"),
        ("_private", "public", "_private"),
        ("v2_outbox", "public", "v2_outbox"),
        ("a" * 48, "public", "a" * 48),
        (f"{'s' * 63}.t", "s" * 63, "t"),
    ],
)
def test_accepted(value: str, schema: str, name: str) -> None:
    table = TableName.parse(value)
    assert (table.schema, table.name) == (schema, name)
    assert str(table) == f"{schema}.{name}"
    assert table.quoted == f'"{schema}"."{name}"'


@pytest.mark.parametrize(
    ("value", "shown", "rule"),
    [
        pytest.param("", "''", "the table name is empty", id="empty"),
        pytest.param("billing.", "'billing.'", "the table name is empty", id="empty-table"),
        pytest.param(".orders", "'.orders'", "the schema name is empty", id="empty-schema"),
        pytest.param('"orders"', "'\"orders\"'", f"the table name {CHARACTERS}", id="double-quotes"),
        pytest.param("it's", '"it\'s"', f"the table name {CHARACTERS}", id="single-quote"),
        pytest.param(
            "a.b.c", "'a.b.c'", "expected 'name' or 'schema.name', with one dot at most", id="two-dots"
        ),
        pytest.param(
            "Orders", "'Orders'", "folds unquoted upper case to lower case; write 'orders'", id="upper"
        ),
        pytest.param("Sales.orders", "'Sales.orders'", "write 'sales'", id="upper-schema"),
        pytest.param("o" * 49, f"'{'o' * 49}'", "has 49 bytes and at most 48 are allowed", id="49-bytes"),
        pytest.param(
            f"{'s' * 64}.t", f"'{'s' * 64}.t'", "has 64 bytes and at most 63 are allowed", id="64-byte-schema"
        ),
        pytest.param("x; drop table y", "'x; drop table y'", CHARACTERS, id="sql"),
        pytest.param("x--", "'x--'", CHARACTERS, id="comment"),
        pytest.param(" orders", "' orders'", CHARACTERS, id="leading-space"),
        pytest.param("orders outbox", "'orders outbox'", CHARACTERS, id="inner-space"),
        pytest.param("orders\n", r"'orders\n'", CHARACTERS, id="trailing-newline"),
        pytest.param("orders\x00", r"'orders\x00'", CHARACTERS, id="nul"),
        pytest.param("bestellübersicht", "'bestellübersicht'", CHARACTERS, id="umlaut"),
        pytest.param("\u043erders", "'\u043erders'", CHARACTERS, id="cyrillic-lookalike"),
        pytest.param("orders²", "'orders²'", CHARACTERS, id="unicode-digit"),
        pytest.param("2orders", "'2orders'", CHARACTERS, id="leading-digit"),
        pytest.param("orders-outbox", "'orders-outbox'", CHARACTERS, id="hyphen"),
        pytest.param(
            "pg_catalog.orders", "'pg_catalog.orders'", "belong to PostgreSQL itself", id="pg-schema"
        ),
        pytest.param(
            "information_schema.orders",
            "'information_schema.orders'",
            "information_schema belongs to PostgreSQL itself",
            id="information-schema",
        ),
        pytest.param(
            "outbox_leader", "'outbox_leader'", "a table the schema's outboxes share", id="leader-table"
        ),
        pytest.param(
            "billing.outbox_schema_version",
            "'billing.outbox_schema_version'",
            "a table the schema's outboxes share; choose another for the messages",
            id="version-table",
        ),
        pytest.param(
            TableName("billing", "outbox_leader"),
            "TableName(schema='billing', name='outbox_leader')",
            "a table the schema's outboxes share",
            id="parsed-leader-table",
        ),
        pytest.param(None, "None", "as a str, got NoneType", id="none"),
        pytest.param(b"orders", "b'orders'", "as a str, got bytes", id="bytes"),
        pytest.param(7, "7", "as a str, got int", id="int"),
    ],
)
def test_refused_with_the_value_and_the_rule(value: object, shown: str, rule: str) -> None:
    with pytest.raises(InvalidTableName) as raised:
        TableName.parse(value)  # type: ignore[arg-type]
    message = str(raised.value)
    assert message.startswith(f"invalid table name {shown}: ")
    assert rule in message
    assert raised.value.value == value
    assert rule in raised.value.rule


def test_a_very_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidTableName) as raised:
        TableName.parse("x" * 10_000)
    assert len(str(raised.value)) < 250
    assert "(10000 characters)" in str(raised.value)


def test_the_constructor_cannot_be_used_to_go_around_the_rules() -> None:
    with pytest.raises(InvalidTableName, match="lower-case letters"):
        TableName("public", 'x"; drop table y; --')
    with pytest.raises(InvalidTableName, match="belong to PostgreSQL itself"):
        TableName("pg_temp", "orders")


def test_an_upper_case_name_that_lowering_would_not_save_gets_no_such_hint() -> None:
    with pytest.raises(InvalidTableName) as raised:
        TableName.parse("Orders Outbox")
    assert "write" not in str(raised.value)


def test_a_parsed_name_parses_to_itself_and_compares_by_value() -> None:
    table = TableName.parse("billing.orders")
    assert TableName.parse(table) is table
    assert TableName.parse("billing.orders") == table
    assert {table: 1}[TableName("billing", "orders")] == 1
    assert sorted([TableName.parse("b.a"), TableName.parse("a.b")]) == [
        TableName("a", "b"),
        TableName("b", "a"),
    ]

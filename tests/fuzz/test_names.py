"""Names of tables, roles, topics and destinations: what is accepted can stand where it is put."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from outbox_amqp.rendering import check_destination
from outbox_core import schema
from outbox_core.adapter.destination import InvalidDestination
from outbox_core.errors import ConfigError, InvalidTableName, InvalidTopic, InvalidTopicPattern
from outbox_core.letters import Filter
from outbox_core.table import TableName
from outbox_core.topic import Topic, TopicPattern, check_topic
from outbox_kafka.rendering import check_topic_name
from outbox_nats.rendering import check_subject
from tests.fuzz.hostile import assert_brief, fuzzed, scalars, spoilt, texts, values

TABLES = (
    "orders_outbox",
    "shop.orders_outbox",
    'shop"."x; DROP TABLE y; --.orders',
    "a" * 48,
    "b" * 63 + ".a",
)
TOPICS = ("shop.order.placed.v1", "a", "shop.*.placed.**", "**", "a." * 63 + "a", "*." * 60 + "a")


@fuzzed
@given(st.one_of(values, spoilt(TABLES)))
def test_a_table_is_two_plain_identifiers_or_refused(value: object) -> None:
    try:
        table = TableName.parse(value)  # type: ignore[arg-type]
    except InvalidTableName as refused:
        assert_brief(refused)
        return
    assert re.fullmatch(r'"[a-z_][a-z0-9_]{0,62}"\."[a-z_][a-z0-9_]{0,47}"', table.quoted)
    assert TableName.parse(str(table)) == table


@fuzzed
@given(st.one_of(values, texts), values)
@example("a\0b", "x")
def test_the_parts_of_a_table_are_checked_too(schema_name: object, name: object) -> None:
    try:
        table = TableName(schema_name, name)  # type: ignore[arg-type]
    except InvalidTableName as refused:
        assert_brief(refused)
        return
    assert table.quoted.count('"') == 4


@fuzzed
@given(st.one_of(texts, spoilt('ada"; DROP TABLE x; --')))
@example("\ud800")
@example("a" * 64)
def test_a_role_is_quoted_or_refused(role: str) -> None:
    try:
        script = schema.roles("shop.orders_outbox", viewer=role)
    except ConfigError as refused:
        assert_brief(refused)
        return
    quoted = '"' + role.replace('"', '""') + '"'
    assert script.count(f" TO {quoted};") == 3
    assert f"{''.join(script.split(quoted))}".count('"') % 2 == 0


@fuzzed
@given(st.one_of(values, spoilt(TOPICS)))
def test_a_topic_is_valid_or_refused(value: object) -> None:
    try:
        topic = check_topic(value)
    except InvalidTopic as refused:
        assert_brief(refused)
    else:
        assert re.fullmatch(r"[a-z0-9.-]{1,127}", topic)
        assert TopicPattern.parse(topic).matches(topic)
    try:
        parsed = Topic.parse(value)  # type: ignore[arg-type]
    except InvalidTopic as refused:
        assert_brief(refused)
    else:
        assert str(parsed) == value


@fuzzed
@given(st.one_of(values, spoilt(TOPICS)), spoilt(TOPICS[:2]))
def test_a_pattern_selects_the_same_in_python_and_in_sql(value: object, topic: str) -> None:
    try:
        pattern = TopicPattern.parse(value)  # type: ignore[arg-type]
    except InvalidTopicPattern as refused:
        assert_brief(refused, 1000)
        return
    expression = Filter(topic=str(pattern)).topic_expression
    assert expression is not None
    if re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)*", topic):
        assert pattern.matches(topic) == (re.search(expression, topic) is not None)


@fuzzed
@given(st.one_of(values, spoilt(TOPICS), st.tuples(texts, texts), st.tuples(scalars)))
def test_a_destination_is_one_the_broker_takes_or_refused(value: object) -> None:
    for check in (check_topic_name, check_subject, lambda given: check_destination(given, "orders")):
        try:
            destination = check(value)
        except InvalidDestination as refused:
            assert_brief(refused)
            continue
        for part in (destination,) if isinstance(destination, str) else destination:
            assert len(part.encode()) <= 255
            assert not set(part) & set("\r\n\0")

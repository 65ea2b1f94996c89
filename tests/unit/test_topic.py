from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_core.errors import InvalidTopic, InvalidTopicPattern, MessageError
from outbox_core.topic import Topic, TopicPattern, check_topic

segments = st.text(alphabet="abcxyz0189-", min_size=1, max_size=8)
topics = st.lists(segments, min_size=1, max_size=10).map(".".join)


@pytest.mark.parametrize("topic", ["a", "orders.order.placed.v1", "0.-.9", "a" * 127, "a-b.c-d"])
def test_a_topic_by_the_rule_is_taken(topic: str) -> None:
    assert check_topic(topic) == topic


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "invalid topic '': it is empty"),
        (".a", "invalid topic '.a': it has an empty segment"),
        ("a.", "it may not begin or end with a dot"),
        ("a..b", "nor have two dots in a row"),
        (".", "empty segment"),
        ("a" * 128, "it has 128 characters and at most 127 are allowed"),
        ("orders.Order", "'O' at position 7 is not allowed: only lower-case letters a-z, digits and hyphens"),
        ("orders.Order", "(write 'orders.order')"),
        ("orders.order_placed", "'_' at position 12 is not allowed"),
        ("orders.order_placed", "(write 'orders.order-placed')"),
        ("a b", "' ' at position 1"),
        ("a\n", r"'\n' at position 1"),
        ("orders.*", "'*' at position 7"),
        ("café", "'é' at position 3"),
        ("٣", "'٣' at position 0"),
        (None, "expected a str, got NoneType"),
        (7, "expected a str, got int"),
        (b"a", "expected a str, got bytes"),
        (Topic("a", "b", "c", 1), "expected a str, got Topic; pass str(topic)"),
    ],
)
def test_anything_else_is_refused_with_the_rule_it_broke(value: object, text: str) -> None:
    with pytest.raises(InvalidTopic, match=re.escape(text)) as caught:
        check_topic(value)

    assert caught.value.code == "MESSAGE.TOPIC"
    assert isinstance(caught.value, MessageError)


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(InvalidTopic) as caught:
        check_topic("A" * 1_000_000)

    assert len(str(caught.value)) < 300
    assert "(1000000 characters)" in str(caught.value)


@settings(deadline=None)
@given(topics)
def test_joined_segments_are_topics(topic: str) -> None:
    assert check_topic(topic) == topic


@settings(deadline=None)
@given(st.text(max_size=20))
def test_every_text_is_a_topic_or_refused(text: str) -> None:
    allowed = all(
        part and set(part) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for part in text.split(".")
    )
    if allowed:
        assert check_topic(text) == text
    else:
        with pytest.raises(InvalidTopic):
            check_topic(text)


def test_the_four_parts_are_read_and_written() -> None:
    topic = Topic.parse("orders.order.placed.v12")

    assert topic == Topic(module="orders", aggregate="order", event="placed", version=12)
    assert str(topic) == "orders.order.placed.v12"
    assert Topic.parse(topic) is topic


def test_versions_sort_as_numbers() -> None:
    versions = [Topic.parse(f"a.b.c.v{number}") for number in (1, 2, 10)]

    assert all(earlier < later for earlier, later in pairwise(versions))


@settings(deadline=None)
@given(segments, segments, segments, st.integers(1, 999_999_999))
def test_topics_of_four_parts_survive_the_round_trip(
    module: str, aggregate: str, event: str, version: int
) -> None:
    topic = Topic(module, aggregate, event, version)

    assert Topic.parse(str(topic)) == topic


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("orders.placed.v1", "expected the four parts <module>.<aggregate>.<event>.vN, got 3"),
        ("a.b.c.d.v1", "got 5"),
        (
            "a.b.c.1",
            "the last of the four parts must be a version such as v1, without leading zeros, got '1'",
        ),
        ("a.b.c.v0", "got 'v0'"),
        ("a.b.c.v01", "got 'v01'"),
        ("a.b.c.v1-2", "got 'v1-2'"),
        ("a.b.C.v1", "'C' at position 4"),
    ],
)
def test_another_shape_is_refused(value: str, text: str) -> None:
    with pytest.raises(InvalidTopic, match=re.escape(text)):
        Topic.parse(value)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("a.b", "c", "d", 1), "the module must be one segment"),
        (("a", "", "d", 1), "the aggregate must be one segment"),
        (("a", "b", "D", 1), "the event must be one segment"),
        (("a", "b", "c", 0), "the version must be a whole number from 1"),
        (("a", "b", "c", True), "the version must be a whole number from 1"),
        (("a", "b", "c", "1"), "the version must be a whole number from 1"),
        (("a" * 120, "b", "c", 1234), "at most 127 are allowed"),
    ],
)
def test_a_topic_made_of_wrong_parts_is_refused(parts: tuple[str, str, str, int], text: str) -> None:
    with pytest.raises(InvalidTopic, match=re.escape(text)):
        Topic(*parts)


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("orders.order.placed.v1", "orders.order.placed.v1", True),
        ("orders.order.placed.v1", "orders.order.placed.v2", False),
        ("orders", "orders.order", False),
        ("orders.*", "orders.order", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.order.placed", False),
        ("*", "orders", True),
        ("*", "orders.order", False),
        ("orders.**", "orders.order.placed.v1", True),
        ("orders.**", "orders.order", True),
        ("orders.**", "orders", False),
        ("orders.**", "invoices.order", False),
        ("**", "orders", True),
        ("**", "a.b.c", True),
        ("**.v1", "orders.order.placed.v1", True),
        ("**.v1", "v1", False),
        ("**.v1", "orders.v1.v2", False),
        ("a.**.b", "a.b", False),
        ("a.**.b", "a.b.b", True),
        ("a.**.b.*", "a.x.b.y.b.z", True),
        ("**.**", "a", False),
        ("**.**", "a.b", True),
        ("**.*.**", "a.b", False),
        ("**.*.**", "a.b.c.d", True),
    ],
)
def test_a_pattern_selects_by_whole_segments(pattern: str, topic: str, matches: bool) -> None:
    assert TopicPattern.parse(pattern).matches(topic) is matches


def test_a_pattern_takes_a_topic_value_and_is_written_as_it_was_read() -> None:
    pattern = TopicPattern.parse("orders.*.**")

    assert pattern.matches(Topic("orders", "order", "placed", 1))
    assert str(pattern) == "orders.*.**"
    assert TopicPattern.parse(pattern) is pattern
    assert not pattern.is_exact
    assert TopicPattern.parse("orders.order").is_exact


def by_regular_expression(pattern: str, topic: str) -> bool:
    parts = {"*": r"[^.]+", "**": r"[^.]+(?:\.[^.]+)*"}
    return (
        re.fullmatch(r"\.".join(parts.get(part, re.escape(part)) for part in pattern.split(".")), topic)
        is not None
    )


few = st.sampled_from(["a", "b"])


@settings(deadline=None, max_examples=300)
@given(
    st.lists(few | st.sampled_from(["*", "**"]), min_size=1, max_size=6).map(".".join),
    st.lists(few, min_size=1, max_size=7).map(".".join),
)
def test_patterns_mean_what_a_regular_expression_would(pattern: str, topic: str) -> None:
    assert TopicPattern.parse(pattern).matches(topic) is by_regular_expression(pattern, topic)


@pytest.mark.timeout(5)
def test_a_pattern_full_of_wildcards_does_not_take_forever() -> None:
    pattern = TopicPattern.parse(".".join(["**"] * 30 + ["x"]))

    assert not pattern.matches(".".join(["a"] * 63))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "it is empty; '**' matches every topic"),
        ("orders.", "segment 2, '', is empty"),
        ("ord*", "segment 1, 'ord*', mixes a wildcard with other characters"),
        ("a.***", "segment 2, '***', mixes a wildcard"),
        (
            "orders.>",
            "segment 2, '>', is another system's wildcard; here '**' stands for one or more segments",
        ),
        ("orders.#", "'#', is another system's wildcard"),
        ("Orders.*", "segment 1, 'Orders', has other characters: only lower-case letters"),
        ("a" * 128, "it has 128 characters; no topic has more than 127, so it matches none"),
        (None, "expected a str, got NoneType"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_segment(value: str, text: str) -> None:
    with pytest.raises(InvalidTopicPattern, match=re.escape(text)) as caught:
        TopicPattern.parse(value)

    assert caught.value.code == "CONFIG.TOPIC_PATTERN"


def test_a_pattern_made_of_wrong_segments_is_refused() -> None:
    with pytest.raises(InvalidTopicPattern, match=re.escape("segment 1, 'a.b', has other characters")):
        TopicPattern(("a.b",))

"""Saying what a value should look like."""

from __future__ import annotations

from unittest.mock import ANY, Mock

import pytest

from outbox_core.errors import ConfigError
from outbox_core.testing import matching


@pytest.mark.parametrize(
    ("expected", "value", "fits"),
    [
        (matching(order=7), {"order": 7, "total": "1.50"}, True),
        (matching(order=7), {"order": 8}, False),
        (matching(order=7), {"total": 7}, False),
        (matching(order=7), [7], False),
        (matching({"customer": {"id": 3}}, order=7), {"order": 7, "customer": {"id": 3, "name": "x"}}, True),
        (matching({"customer": {"id": 3}}, order=7), {"order": 7, "customer": {"id": 4}}, False),
        (matching(lines=[{"sku": "a"}, ANY]), {"lines": [{"sku": "a", "n": 1}, 5]}, True),
        (matching(lines=[{"sku": "a"}]), {"lines": [{"sku": "a"}, {"sku": "b"}]}, False),
        (matching(total=str), {"total": "1.50"}, True),
        (matching(total=str), {"total": 1.5}, False),
        (matching(lambda payload: payload["total"] > 100), {"total": 101}, True),
        (matching(lambda payload: payload["total"] > 100), {"total": 99}, False),
        (matching(lambda payload: payload["total"] > 100), {"order": 1}, False),
        (matching(lambda payload: payload["total"] > 100), "text", False),
        (matching(order=matching(lambda order: order > 6)), {"order": 7}, True),
        (matching("text"), "text", True),
        (matching(None), None, True),
    ],
)
def test_what_fits(expected: object, value: object, fits: bool) -> None:
    assert (expected == value) is fits
    assert (value == expected) is fits


def test_works_inside_other_comparisons() -> None:
    call = Mock()
    call({"order": 7, "total": 1})
    call.assert_called_once_with(matching(order=7))
    assert {"orders": [matching(order=7)]} == {"orders": [{"order": 7}]}


def test_an_error_in_a_condition_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        bool(matching(lambda value: value / 0) == 1)


def test_shows_what_it_expects() -> None:
    assert repr(matching(order=7)) == "matching({'order': 7})"


def test_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="needs something to match"):
        matching()
    with pytest.raises(ConfigError, match=r"fields can only be added to a mapping, got 3"):
        matching(3, order=7)

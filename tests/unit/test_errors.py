"""The error tree: every class has its own code, in a family that is known."""

from __future__ import annotations

import inspect
import re

import outbox_core.errors
from outbox_core.errors import (
    ConfigError,
    EventBusError,
    OutboxError,
    ProviderError,
    StorageError,
    TransactionError,
)

FAMILIES = {"CONFIG", "MESSAGE", "TX", "STORAGE", "PROVIDER", "EVENTBUS", "UNKNOWN"}
FAMILY_OF_ROOT = {
    ConfigError: "CONFIG",
    TransactionError: "TX",
    StorageError: "STORAGE",
    ProviderError: "PROVIDER",
    EventBusError: "EVENTBUS",
}

CLASSES = [
    member
    for _, member in inspect.getmembers(outbox_core.errors, inspect.isclass)
    if issubclass(member, BaseException) and member.__module__.startswith("outbox_core.errors.")
]


def test_every_class_is_in_the_tree() -> None:
    assert CLASSES
    assert [error for error in CLASSES if not issubclass(error, OutboxError)] == []


def test_every_class_states_its_own_code() -> None:
    assert [error.__name__ for error in CLASSES if "code" not in vars(error)] == []


def test_codes_are_unique() -> None:
    codes = [error.code for error in CLASSES]
    assert sorted(codes) == sorted(set(codes))


def test_codes_are_well_formed_and_in_a_known_family() -> None:
    for error in CLASSES:
        assert re.fullmatch(r"[A-Z]+\.[A-Z][A-Z_]*[A-Z]", error.code), error
        assert error.code.partition(".")[0] in FAMILIES, error


def test_a_subclass_stays_in_its_family() -> None:
    for error in CLASSES:
        roots = [base for base in error.__mro__ if base in FAMILY_OF_ROOT]
        if roots:  # of two, the first: a permanent error of the event bus is the event bus's
            assert error.code.startswith(f"{FAMILY_OF_ROOT[roots[0]]}."), error


def test_the_drawn_tree_shows_every_class_with_its_code() -> None:
    drawn = inspect.getdoc(outbox_core.errors) or ""
    for error in CLASSES:
        assert re.search(rf"\b{error.__name__} +{re.escape(error.code)}\b", drawn), error.__name__


def test_every_class_says_when_it_is_raised() -> None:
    for error in CLASSES:
        if error is not OutboxError:
            assert (error.__doc__ or "").startswith("Raised "), error.__name__

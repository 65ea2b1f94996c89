"""Arms by turns: each round begins with another one, so that nobody always goes first on a rested machine, or last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def rotated(arms: Sequence[T], number: int) -> list[T]:
    """The arms in the order of the round of this number, counted from 0."""
    shift = number % len(arms) if arms else 0
    return [*arms[shift:], *arms[:shift]]

"""Arms by turns: each round begins with another one, so that nobody always goes first on a rested machine, or last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class MayFail(Protocol):
    """What the rounds of an arm gave, and why they could not be measured to the end."""

    failure: str | None


def rotated(arms: Sequence[T], number: int) -> list[T]:
    """The arms in the order of the round of this number, counted from 0."""
    shift = number % len(arms) if arms else 0
    return [*arms[shift:], *arms[:shift]]


def guarded(rounds: MayFail, turn: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """Notes in one line why it failed, whatever that was, and gives it no further turn."""

    async def once_more(*given: P.args, **named: P.kwargs) -> None:
        if rounds.failure is None:
            try:
                await turn(*given, **named)
            except Exception as error:
                # Whatever a library or a server of somebody else's comes to is told of it alone.
                rounds.failure = " ".join(f"it failed: {type(error).__name__}: {error}".split())

    return once_more

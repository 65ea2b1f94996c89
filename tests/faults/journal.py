"""Lines of JSON that many processes write and one reads as they come."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Line = dict[str, Any]
_POLL_SECONDS = 0.05


class NotHit(AssertionError):
    """Raised when a fault was injected and nobody felt it: the run then proves nothing about it."""


class BrokenPromise(AssertionError):
    """Raised when a fault was felt and somebody did not do what is promised for it."""


class NotHere(Exception):
    """Raised when a machine cannot have a fault; the message says what it lacks."""


class Tail:
    """Every whole line of a journal so far, read from where the last look ended. Times are the monotonic clock's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._lines: list[Line] = []

    def lines(self) -> list[Line]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._offset += len(whole) + 1
                self._lines += [json.loads(line) for line in whole.split(b"\n")]
        return self._lines

    def since(self, moment: float, *names: str, **details: object) -> list[Line]:
        """The events with one of these names since a moment."""
        return [
            line
            for line in self.lines()
            if line["at"] >= moment
            and (not names or line.get("name") in names)
            and all(line.get(field) == value for field, value in details.items())
        ]

    async def until(self, moment: float, *names: str, within: float, **details: object) -> list[Line]:
        """Wait for such an event; `NotHit` when none comes in time."""
        found: list[Line] = await eventually(
            lambda: self.since(moment, *names, **details), within, f"no {' or '.join(names)} {details or ''}"
        )
        return found


async def eventually(condition: Callable[[], Any], within: float, otherwise: str) -> Any:
    """What a condition gives once it gives something; `NotHit` after so many seconds."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise NotHit(f"{otherwise} within {within:g} s")
        await asyncio.sleep(_POLL_SECONDS)
    return found


@contextmanager
def promised() -> Iterator[None]:
    """In this block the fault is in: what does not happen in its time now breaks a promise, and fails the run."""
    try:
        yield
    except (NotHit, TimeoutError) as error:
        raise BrokenPromise(str(error)) from error

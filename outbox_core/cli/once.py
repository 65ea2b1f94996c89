"""What became of ``outbox relay --once``: how much was delivered, and what kept the rest from being."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from outbox_core.cli.failures import ExitCode
from outbox_core.errors import StorageUnavailable
from outbox_core.observer import (
    BreakerClosed,
    BreakerOpened,
    Dead,
    Event,
    Failed,
    LeaderGained,
    Reconnecting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outbox_core.table import TableName


class NotDelivered(click.ClickException):
    """Raised when messages were due and stay undelivered: their destination is away, or none of them was taken."""

    exit_code = ExitCode.BROKER


class LedElsewhere(click.ClickException):
    """Raised when a table was left to another relay, which leads it."""

    exit_code = ExitCode.LED_ELSEWHERE


class Tally:
    """An observer of one run. `conclude` says what it came to."""

    def __init__(self) -> None:
        self._led: set[TableName] = set()
        self._away: dict[str, str] = {}
        self._failed = self._dead = 0
        self._error = ""
        self._trouble: dict[TableName, str] = {}

    def __call__(self, event: Event, /) -> None:
        match event:
            case LeaderGained():
                self._led.add(event.table)
                self._trouble.pop(event.table, None)
            case BreakerOpened():
                self._away[event.destination] = event.error
            case BreakerClosed():
                self._away.pop(event.destination, None)
            case Failed(charged=True):
                self._failed += 1
                self._error = event.error
            case Dead():
                self._dead += 1
                self._error = event.error
            case Reconnecting():
                self._trouble[event.table] = event.error
            case _:
                pass

    def conclude(self, published: int, tables: Sequence[TableName], *, single_active: bool) -> str:
        """What to say of a run in which something was delivered, or nothing was due. Raises for any other."""
        if self._away:
            away = "; ".join(f"{destination} is away: {error}" for destination, error in self._away.items())
            raise NotDelivered(f"{published} message(s) published; what else is due waits, {away}")
        tried = self._failed + self._dead
        if tried and not published:
            raise NotDelivered(
                f"no message was published: of {tried} deliveries that failed, {self._dead} made their message dead and"
                f" {self._failed} will be tried again; the last error was {self._error}"
            )
        left = [table for table in tables if single_active and table not in self._led]
        for table in left:
            if table in self._trouble:
                raise StorageUnavailable(f"{table} could not be delivered: {self._trouble[table]}")
        if left:
            names = ", ".join(map(str, left))
            raise LedElsewhere(
                f"{published} message(s) published; another relay leads {names} and delivers what is due there"
            )
        return f"{published} message(s) published, {self._failed} put off, {self._dead} dead"

"""Observers that remember."""

from __future__ import annotations

from typing import TypeVar

from outbox_core.observer import Event

E = TypeVar("E", bound=Event)


class Heard:
    """An observer that keeps every event in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event, /) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

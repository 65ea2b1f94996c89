"""Shared parts: what the tables of one run have in common."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outbox_core.observer import Event, Published, tell

if TYPE_CHECKING:
    from outbox_core.observer import Observer
    from outbox_core.relay.dispatching.destinations import Destinations
    from outbox_core.relay.dispatching.slots import Slots
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.runtime.backoff import Backoff
    from outbox_core.runtime.shutdown import Shutdown
    from outbox_core.store import Store

_logger: Final = logging.getLogger("outbox_core.relay")


class Observers:
    """All observers of one run, none of whom can break the relay, and the count of what was published in it."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self.published = 0

    def notify(self, event: Event) -> None:
        """Pass an event on to every observer; what one of them raises is logged and dropped."""
        if isinstance(event, Published):
            self.published += len(event.messages)
        tell(self._observers, event, _logger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Made by a run, given to every part of each of its pipelines."""

    store: Store
    settings: RelaySettings
    backoff: Backoff
    destinations: Destinations
    slots: Slots
    observers: Observers
    shutdown: Shutdown

"""Telling the observers, none of whom can break the relay."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from outbox_core.observer import Event, Published, tell

if TYPE_CHECKING:
    from outbox_core.observer import Observer

_logger: Final = logging.getLogger("outbox_core.relay")


class Audience:
    """All observers of one run, and the count of what was published in it."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self.published = 0

    def tell(self, event: Event) -> None:
        """Pass an event on to everyone; what one of them raises is logged and dropped."""
        if isinstance(event, Published):
            self.published += len(event.messages)
        tell(self._observers, event, _logger)

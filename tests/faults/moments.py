"""Named moments of a relay's work, and the fault of its process at one of them, ordered while it runs."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Literal

from outbox_core.store import Store
from outbox_core.table import TableName
from tests.integration.relay.faults import Faults, FaultyStore
from tests.integration.relay.journal import Journal

Act = Literal["kill", "stop", "block"]


class Moments(Faults):
    """Kills, stops or blocks its own process at the ``nth`` time of the moment that was ordered, counted from then.

    That it does is written down first. Blocking keeps the event loop for ``block_seconds``.
    """

    def __init__(self, journal: Journal, name: str, block_seconds: float) -> None:
        super().__init__(journal)
        self._name = name
        self._block_seconds = block_seconds
        self._awaited = ""
        self._left = 0
        self._deed: Act = "kill"
        self.seen: Counter[str] = Counter()
        """How often each moment came, since the start."""

    def order(self, point: str, nth: int, act: Act) -> None:
        self._awaited, self._left, self._deed = point, nth, act

    def reached(self, point: str) -> None:
        self.seen[point] += 1
        if point != self._awaited:
            return
        self._left -= 1
        if self._left == 0:
            self._awaited = ""
            self._journal.write("fault", point=point, relay=self._name, act=self._deed)
            match self._deed:
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case "block":
                    time.sleep(self._block_seconds)

    def expects(self, point: str) -> bool:
        return point == self._awaited

    @property
    def claims(self) -> int:
        """Statements that were sent to lease rows, also those that found none."""
        return self.seen["claim.before"] + self.seen["claim_keys.before"]


class WatchedStore(FaultyStore):
    """A store with the moments around its writes, and a count of the hints that it heard."""

    def __init__(self, store: Store, moments: Moments) -> None:
        super().__init__(store, moments)
        self.hints = 0

    @property
    def admin_store(self) -> Any:
        """Named here because this attribute shows that a store has it."""
        store: Any = self._store
        return store.admin_store

    def listen(self, tables: Collection[TableName], callback: Callable[[TableName | None], None]) -> None:
        def hear(table: TableName | None) -> None:
            self.hints += 1
            callback(table)

        self._store.listen(tables, hear)

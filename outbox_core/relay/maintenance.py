"""Maintenance beside the relay: the cleaner keeps its tables small, the monitor checks how they stand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outbox_core.admin_store import HasAdminStore
from outbox_core.cleaner import Cleaner, CleanerSettings
from outbox_core.errors import ConfigError
from outbox_core.monitor import Monitor, MonitorSettings

if TYPE_CHECKING:
    from outbox_core.relay.shared import Observers
    from outbox_core.store import Store
    from outbox_core.table import TableName


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The maintenance that a relay does, each part on its own sessions; a store without an admin store has none."""

    cleaner: CleanerSettings | None = None
    monitor: MonitorSettings | None = None

    @classmethod
    def asked_for(cls, cleaner: CleanerSettings | None, monitor: MonitorSettings | None) -> Maintenance:
        """Take what is asked for; None, or settings that are switched off, leave one out."""
        for name, given, kind in (
            ("cleaner", cleaner, CleanerSettings),
            ("monitor", monitor, MonitorSettings),
        ):
            value: object = given
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} must be {kind.__name__} or None, got {value!r}")
        return cls(
            cleaner if cleaner is not None and cleaner.enabled else None,
            monitor if monitor is not None and monitor.enabled else None,
        )

    def loops(
        self, store: Store, tables: Sequence[TableName], observers: Observers
    ) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """The loops to run until the relay stops."""
        if not isinstance(store, HasAdminStore):
            return []
        loops: list[Callable[[], Coroutine[Any, Any, None]]] = []
        if self.cleaner is not None:
            loops += [
                Cleaner(store, table, self.cleaner, observers=(observers.notify,)).run for table in tables
            ]
        if self.monitor is not None:
            loops.append(Monitor(store, tables, self.monitor, observers.notify).run)
        return loops

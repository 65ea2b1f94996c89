"""Reads the status of tables: once, or at an interval for a relay's observers and its health."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio

from outbox_core.admin_store import HasAdminStore, Reporting
from outbox_core.errors import ConfigError, StorageError
from outbox_core.observer import Measured
from outbox_core.status import Look, TableStatus
from outbox_core.stores import for_url
from outbox_core.table import TableName

if TYPE_CHECKING:
    from outbox_core.observer import Event

_LONGEST_FACTOR: Final = 8
_FIRST_PAUSE: Final = 0.25
"""Seconds from the first reading to the second while no relay leads; it doubles up to the interval."""
_logger: Final = logging.getLogger("outbox_core.monitor")


async def read_status(
    source: str | Reporting | HasAdminStore,
    *tables: str | TableName,
    look: Look | None = None,
    timeout: float = 5.0,
    connect: Mapping[str, Any] | None = None,
) -> list[TableStatus]:
    """Read the status of each table, in the order given, at a cost that does not grow with the tables.

    ``source`` is the database's URL, for which a session is opened and closed again, or a store that is open. No
    statement takes longer than ``timeout`` seconds. ``connect`` is passed to the store's
    driver, ``asyncpg.connect`` for PostgreSQL.
    """
    names = [TableName.parse(table) for table in tables]
    if isinstance(source, str):
        async with for_url(source).admin_store(*names, timeout=timeout, connect=connect) as admin_store:
            return [await admin_store.status(name, look or Look()) for name in names]
    store = source.admin_store if isinstance(source, HasAdminStore) else source
    return [await store.status(name, look or Look()) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """The interval (s) at which a relay reads the status of its tables, and how far it counts."""

    enabled: bool = True
    interval: float = 15.0
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        if not 0 < self.interval < math.inf:
            raise ConfigError(
                f"interval must be a number of seconds greater than 0 and finite, got {self.interval!r}"
            )


class Monitor:
    """Reads the status of tables one after the other, every ``interval``, and reports it as `Measured`.

    A reading that fails is left out: the last one stays the latest, with its time in it. The next waits longer the more
    often that happens, up to eight intervals, so that a database in trouble is not asked for figures on top. At first
    the pauses are shorter while a table has no leader, as at the start of the relay that is about to become it.
    """

    def __init__(
        self,
        store: Reporting | HasAdminStore,
        tables: Sequence[TableName],
        settings: MonitorSettings,
        observe: Callable[[Event], None],
    ) -> None:
        self._store: Reporting = store.admin_store if isinstance(store, HasAdminStore) else store
        self._tables = tables
        self._settings = settings
        self._observe = observe
        self._complaint = ""
        self._leaderless = False

    async def run(self) -> None:
        """Read at once, and then every interval, until cancelled."""
        factor, pause = 1, min(_FIRST_PAUSE, self._settings.interval)
        while True:
            factor = 1 if await self.look() else min(2 * factor, _LONGEST_FACTOR)
            early = self._leaderless and factor == 1 and pause < self._settings.interval
            await anyio.sleep(pause if early else factor * self._settings.interval)
            pause = min(2 * pause, self._settings.interval)

    async def look(self) -> bool:
        """Read every table once; false when one of them failed."""
        leaders: list[bool] = []
        for table in self._tables:
            try:
                status = await self._store.status(table, self._settings.look)
            except Exception as error:  # figures are not worth a relay
                self._complain(table, error)
                return False
            self._observe(Measured(table, status))
            leaders.append(status.leader is not None)
        self._leaderless = not all(leaders)
        self._complaint = ""
        return True

    def _complain(self, table: TableName, error: Exception) -> None:
        why = str(error) if isinstance(error, StorageError) else type(error).__name__
        complaint = f"{table}: the table's figures cannot be read, the last ones stand: {why}"
        if complaint != self._complaint:
            _logger.warning("%s", complaint, extra={"outbox_table": str(table)})
        self._complaint = complaint

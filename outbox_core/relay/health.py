"""Health: whether a relay lives, can do its work and keeps up, from its own events, without asking the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from outbox_core import observer as events
from outbox_core.errors import ConfigError
from outbox_core.relay.run import RelayState
from outbox_core.status import Count, TableStatus

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.table import TableName

_TROUBLE_SLACK: Final = 2.0
"""Seconds after a try was due that trouble is still thought to last when nothing was heard."""
_STALE_INTERVALS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """From where on a relay lags: pending messages of a table, seconds the oldest of them has waited. None: never."""

    max_pending: int | None = None
    max_age: float | None = 300.0

    def __post_init__(self) -> None:
        for name in ("max_pending", "max_age"):
            value: float | None = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} must be a number that is not negative, or None, got {value!r}")


@dataclass(frozen=True, slots=True)
class TableHealth:
    """One table of a relay. ``term`` is None while the relay stands by. ``status`` is that of its last check,
    ``age`` seconds ago; both are None before the first."""

    table: TableName
    term: int | None
    status: TableStatus | None
    age: float | None


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a relay, and ``reasons`` in words for whatever is not as it should be.

    ``live``: it has not ended; one that is not live must be started again. ``ready``: it runs and the database serves
    it; one that stands by for another leader is ready. ``lagging``: more waits, or for longer, than the limits allow,
    or that is unknown because the figures are too old. A destination that is unavailable is a reason and makes nothing
    else worse by itself: no restart brings it back.
    """

    live: bool
    ready: bool
    lagging: bool
    lag: float | None
    """Seconds that the oldest pending message of all tables has waited, as of the last check. None when not known."""
    pending: Count | None
    """Pending messages of all tables, as of the last check. None when not known."""
    age: float | None
    """Seconds since that check, the oldest of the tables': lag and pending are as old. None when not known."""
    reasons: tuple[str, ...]
    tables: tuple[TableHealth, ...]

    def as_json(self) -> dict[str, Any]:
        """For an answer over HTTP: plain values. The reasons name tables and destinations, no addresses."""
        pending = None if self.pending is None else {"value": self.pending.value, "exact": self.pending.exact}
        return {
            "live": self.live,
            "ready": self.ready,
            "lagging": self.lagging,
            "lag_seconds": self.lag,
            "pending": pending,
            "figures_age_seconds": None if self.age is None else round(self.age, 3),
            "reasons": list(self.reasons),
        }


class Vitals:
    """An observer that remembers what `Health` is made of. Times are of this process's monotonic clock."""

    def __init__(
        self, tables: Sequence[TableName], settings: RelaySettings, measured_every: float | None
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._measured_every = measured_every
        self._began = time.monotonic()
        self._terms: dict[TableName, int] = {}
        self._statuses: dict[TableName, tuple[float, TableStatus]] = {}
        self._trouble: dict[TableName, tuple[float, str]] = {}
        """Until when a table's database is thought to be in trouble, and which."""
        self._unavailable: dict[str, float] = {}

    def __call__(self, event: Event, /) -> None:
        now = time.monotonic()
        match event:
            case events.Measured():
                self._statuses[event.table] = (now, event.status)
                self._trouble.pop(event.table, None)
            case events.Claimed():
                self._trouble.pop(event.table, None)
            case events.Reconnecting():
                until = now + event.retry_in + self._settings.database_timeout + _TROUBLE_SLACK
                self._trouble[event.table] = (until, event.error)
            case events.LeaderGained():
                self._terms[event.table] = event.term
                self._trouble.pop(event.table, None)
            case events.LeaderLost():
                self._terms.pop(event.table, None)
            case events.BreakerOpened():
                self._unavailable.setdefault(event.destination, now)
            case events.BreakerClosed():
                self._unavailable.pop(event.destination, None)
            case _:
                pass

    def health(self, state: RelayState, ended_with: BaseException | None, limits: HealthLimits) -> Health:
        """The verdict at this moment."""
        now = time.monotonic()
        trouble = [(table, why) for table, (until, why) in self._trouble.items() if now < until]
        running = state is RelayState.RUNNING
        lagging = self._lagging(now, limits) if running else []
        reasons: list[str] = []
        if ended_with is not None:
            reasons.append(f"the relay ended with {type(ended_with).__name__}")
        elif not running:
            reasons.append(f"the relay is {state.value}")
        if running:
            reasons += [f"{table}: trouble with the database: {why}" for table, why in trouble]
            reasons += [
                f"{name} has been unavailable for {now - since:.0f} s"
                for name, since in self._unavailable.items()
            ]
            reasons += self._leaderless(now) + lagging
        statuses = [status for _, status in self._statuses.values()]
        ages = [status.oldest_pending_age or 0.0 for status in statuses]
        complete = len(statuses) == len(self._tables)
        return Health(
            live=state is not RelayState.STOPPED,
            ready=running and not trouble,
            lagging=bool(lagging),
            lag=max(ages) if complete else None,
            pending=sum((status.pending for status in statuses), Count(0)) if complete else None,
            age=max(now - at for at, _ in self._statuses.values()) if complete else None,
            reasons=tuple(reasons),
            tables=tuple(self._table(table, now) for table in self._tables),
        )

    def _table(self, table: TableName, now: float) -> TableHealth:
        term = self._terms.get(table)
        found = self._statuses.get(table)
        return (
            TableHealth(table, term, None, None)
            if found is None
            else TableHealth(table, term, found[1], now - found[0])
        )

    def _lagging(self, now: float, limits: HealthLimits) -> list[str]:
        if self._measured_every is None:
            return []
        reasons: list[str] = []
        for table in self._tables:
            at, status = self._statuses.get(table, (self._began, None))
            if now - at > _STALE_INTERVALS * self._measured_every + self._settings.database_timeout:
                reasons.append(f"{table}: the last figures are {now - at:.0f} s old")
            elif status is not None:
                age, pending = status.oldest_pending_age or 0.0, status.pending
                if limits.max_age is not None and age > limits.max_age:
                    reasons.append(
                        f"{table}: the oldest message has waited {age:.0f} s, more than {limits.max_age:g} s"
                    )
                if limits.max_pending is not None and pending.value > limits.max_pending:
                    reasons.append(
                        f"{table}: {pending} messages are pending, more than {limits.max_pending:,}"
                    )
        return reasons

    def _leaderless(self, now: float) -> list[str]:
        """Tables that no relay leads, except during an election, when that is as it should be."""
        takeover = self._settings.takeover
        if not self._settings.single_active or now - self._began < 2 * takeover:
            return []
        # A check counts until the next one is due.
        fresh = max(takeover, (self._measured_every or 0.0) + self._settings.database_timeout)
        silent: list[str] = []
        for table, (at, status) in self._statuses.items():
            heartbeat = None if status.leader is None else status.leader.heartbeat_age
            led = heartbeat is not None and heartbeat < takeover
            if table not in self._terms and now - at < fresh and not led:
                silent.append(f"{table}: no relay leads")
        return silent

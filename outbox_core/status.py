"""How a table stands at one moment: what waits, what is in flight, what is dead, who leads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from outbox_core.errors import ConfigError

if TYPE_CHECKING:
    from outbox_core.table import TableName

RECENTLY: Final = 10.0
"""Seconds over which `TableStatus.published_recently` counts."""
_LARGEST_LIMIT: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Count:
    """A number of messages. When it is not ``exact`` counting stopped there: there are at least so many."""

    value: int
    exact: bool = True

    @classmethod
    def up_to(cls, limit: int, found: int) -> Count:
        """What a count that looks for one more than ``limit`` has found."""
        return cls(min(found, limit), found <= limit)

    def __add__(self, other: Count) -> Count:
        return Count(self.value + other.value, self.exact and other.exact)

    def __str__(self) -> str:
        return f"{self.value:,}" if self.exact else f"at least {self.value:,}"


@dataclass(frozen=True, slots=True)
class Look:
    """How far a look at a table goes, which bounds what it costs.

    ``limit`` is where counts that an index alone can answer stop, and ``depth`` how many messages are looked into:
    the first of those due, and as many of those not yet due, in the order in which relays take them.
    """

    limit: int = 10_000
    depth: int = 1_000

    def __post_init__(self) -> None:
        for name in ("limit", "depth"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LARGEST_LIMIT:
                raise ConfigError(f"{name} must be an int from 1 to {_LARGEST_LIMIT}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads a table. A ``heartbeat_age`` (s) beyond the relays' ``takeover`` means that the holder is gone."""

    term: int
    holder: str
    heartbeat_age: float


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One look at a table, by the database's clock."""

    table: TableName
    at: datetime
    pending: Count
    """Neither published nor dead, whether due, waiting or in flight."""
    waiting: Count
    """Of them: not due yet, because they were delayed or because they were tried and put off."""
    locked: Count
    """Of them: leased by a relay."""
    dead: Count
    away: Count
    """Of the pending: last put off because their destination was away. More than none says that a breaker is open at a
    relay, or was until a moment ago."""
    away_topics: tuple[str, ...]
    """The topics of those, five at most."""
    oldest_pending_age: float | None
    """Seconds that the longest waiting of the pending has waited: since it was due if it was never tried, since it was
    written if it was. None when all that is pending was delayed on purpose, or nothing is."""
    published_recently: Count
    """Published in the last `RECENTLY` seconds; always none where published messages are deleted at once."""
    written: int
    """Grows with every message written, those of rolled-back transactions included. For rates: only the difference of
    two looks means something."""
    leader: Leadership | None
    """None when nobody leads: no relay runs, or none with ``single_active``."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second between two looks. ``delivered`` is None when it cannot be told."""

    written: float
    delivered: float | None


def rates(earlier: TableStatus, later: TableStatus) -> Rates:
    """How fast messages came in and left between two looks at one table, the second at a later time."""
    seconds = (later.at - earlier.at).total_seconds()
    if seconds <= 0:
        raise ConfigError(f"the second look must be later than the first, but is {-seconds:g} s before it")
    written = max(later.written - earlier.written, 0)
    delivered: float | None
    if later.published_recently.value:
        recent = later.published_recently
        delivered = recent.value / RECENTLY if recent.exact else None
    elif earlier.pending.exact and later.pending.exact and earlier.dead.exact and later.dead.exact:
        # Published messages may be deleted at once: what was written and is not there any more has left.
        kept = later.pending.value - earlier.pending.value + later.dead.value - earlier.dead.value
        delivered = max(written - kept, 0) / seconds
    else:
        delivered = None
    return Rates(written / seconds, delivered)

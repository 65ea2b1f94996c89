"""What a run is made of. The seed decides everything that is left to chance, save what the machine's timing adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from outbox_core.relay.settings import RelaySettings

Broker = Literal["kafka", "nats", "amqp"]
BROKERS: Final[tuple[Broker, ...]] = ("kafka", "nats", "amqp")
OnPublished = Literal["mark", "delete"]
TABLE: Final = "faults_outbox"
TOPIC: Final = "faults.order"
POISON: Final = "faults.poison"
"""A topic that has no destination: its messages can never be delivered, and are dead at once."""
GRACE: Final = 2.0
_DAYS: Final = 2 * 86400.0
BLOCK_MORE_SECONDS: Final = 3.0
"""For how much longer than a lease an event loop is blocked: others take its rows only now and then."""

RELAY: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "lock_ttl": 5.0,
        "dispatch_timeout": 1.5,
        "database_timeout": 1.0,
        "takeover": 2.5,
        "poll_interval": 0.3,
        "backoff_base": 0.2,
        "backoff_cap": 1.0,
        "backoff_jitter": 0.1,
        "max_attempts": 100,
    }
)
"""Short times, so that many faults fit in a minute; attempts enough that no fault makes a message dead."""
CALM: Final[Mapping[str, Any]] = MappingProxyType(
    {
        name: getattr(RelaySettings(), name)
        for name in ("lock_ttl", "dispatch_timeout", "database_timeout", "takeover")
    }
)
"""What a relay has by itself, for a run in which nothing is broken: a disk that takes 100 ms to write is no fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. Ordered: writers serialise per key, one relay leads and the others stand by, and order is checked.
    Otherwise writers do not wait for each other, all relays work side by side, and only loss is checked."""

    seed: int
    broker: Broker
    seconds: float
    ordered: bool
    writers: int = 3
    relays: int = 2
    on_published: OnPublished = "mark"
    keys: int = 12
    rate: float = 15.0
    """Transactions a second of each writer."""
    retention: float = 7 * 86400.0
    """Seconds until what is published is deleted."""
    dead_retention: float | None = None
    """Seconds until dead letters are deleted; None keeps them."""
    calm: bool = False
    """Whether nothing is broken, so that nothing has to be found out soon."""

    @property
    def settings(self) -> dict[str, Any]:
        times = CALM if self.calm else {}
        return {**RELAY, **times, "single_active": self.ordered, "on_published": self.on_published}

    @property
    def cleaner(self) -> dict[str, Any]:
        interval = max(1.0, min(60.0, self.retention / 10))
        return {"retention": self.retention, "dead_retention": self.dead_retention, "interval": interval}

    @property
    def kept(self) -> frozenset[str]:
        """The states in which a row is never cleaned away in this run, also with all jumps of the server's clock."""
        keeps_published = self.on_published == "mark" and self.retention >= _DAYS
        return frozenset({"published"} if keeps_published else ()) | frozenset(
            {"dead"} if self.dead_retention is None else ()
        )

    @property
    def mode(self) -> str:
        return "ordered" if self.ordered else "side by side"

    @property
    def name(self) -> str:
        return f"{self.broker}, {self.mode}, seed {self.seed}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

"""What is decided about a run before it begins, by its seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

CHAOS_SECONDS = 24.0


@dataclass(frozen=True)
class Plan:
    """Settings of the relays and how often what goes wrong."""

    relays: int
    tables: int
    settings: dict[str, Any]
    writers: int
    keys: int
    store_faults: float
    dispatch_faults: float
    batches: bool
    probes: bool
    shields: bool
    """Whether database calls are carried through when their caller is cancelled, as the PostgreSQL store's are."""
    killer: bool
    """Whether a message is there that kills whoever dispatches it."""
    hasty: bool
    """Whether some writers do not wait for others of the same key, so that what was written first may be committed
    last. Of even seeds only: the runs of odd ones are what they were when they found something."""
    search_seconds: float
    """How much longer than other calls it takes to look for what comes before in a key."""

    @property
    def ordered(self) -> bool:
        return bool(self.settings["single_active"])


def plan_of(seed: int) -> Plan:
    random = Random(f"plan {seed}")
    single = random.random() < 0.85
    hasty = seed % 2 == 0
    settings: dict[str, Any] = {
        "batch_size": random.choice((2, 5, 20, 100)),
        "batch_bytes": random.choice((60, 400, 8_000_000)),
        "concurrency": random.choice((1, 3, 16)),
        "poll_interval": random.choice((0.3, 1.0)),
        "lock_ttl": random.choice((9.0, 12.0)),
        "max_attempts": random.choice((3, 5, 8)),
        "dispatch_timeout": 3.0,
        "database_timeout": 2.0,
        "takeover": 4.0,
        "backoff_base": 0.5,
        "backoff_cap": 4.0,
        "single_active": single,
        "on_published": random.choice(("mark", "mark", "delete")),
        "on_dead": "block" if single and random.random() < 0.15 else "skip",
    }
    return Plan(
        relays=random.choice((1, 2, 2, 3)),
        tables=random.choice((1, 1, 2)),
        settings=settings,
        writers=random.choice((2, 3)),
        keys=random.choice((1, 3, 8)),
        store_faults=random.choice((0.0, 0.02, 0.08)),
        dispatch_faults=random.choice((0.05, 0.2, 0.4)),
        batches=random.random() < 0.4,
        probes=random.random() < 0.7,
        shields=random.random() < 0.8,
        killer=random.random() < 0.2,
        hasty=hasty,
        search_seconds=random.choice((0.0, 0.006)),
    )

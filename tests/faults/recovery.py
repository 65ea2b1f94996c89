"""How soon relays must work again after a fault, and how soon they did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

POSTGRES_AGAIN = frozenset({"restart_postgres", "kill_postgres"})
"""Kinds after which the server was away. Relays promise to work 5 s after it is back."""
POSTGRES_SECONDS = 5.0
SLACK = 2
"""Times as long as is promised: the machine is busy, and a relay that was killed is a process to be started first."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """When work went on. Times are of the monotonic clock; None is what did not come."""

    resumed: float | None
    """When anybody published again."""
    whole: float | None
    """When everybody did who has to."""
    silent: str = ""
    """Who did not, and for how long it was waited for; empty when all is well."""


def recovery(since: float, published: Iterable[Mapping[str, Any]], needed: Iterable[str] | None) -> Recovery:
    """What these lines of relays that published say of the time from ``since`` on.

    ``needed`` names the relays that all have to be among them; None asks for any one, as where only one leads.
    """
    first: dict[str, float] = {}
    for line in published:
        if line["at"] >= since:
            first.setdefault(line["relay"], line["at"])
    resumed = min(first.values(), default=None)
    if needed is None:
        return Recovery(resumed, resumed, "" if first else "nobody published anything any more")
    names = sorted(needed)
    silent = [name for name in names if name not in first]
    if silent or not names:
        who = f"{', '.join(silent)} published nothing any more" if names else "no relay is running"
        return Recovery(resumed, None, who)
    return Recovery(resumed, max(first[name] for name in names))


def promised_seconds(kind: str, settings: Mapping[str, Any]) -> float:
    """From the end of a fault until relays have to work again, with slack.

    At worst a relay waits for the leases of one that is gone, for the leadership, for its own next try and for its
    next look at the table, one after the other.
    """
    if kind in POSTGRES_AGAIN:
        return SLACK * POSTGRES_SECONDS
    waits = ("lock_ttl", "takeover", "backoff_cap", "poll_interval")
    return float(SLACK * sum(settings[name] for name in waits))


def late(kind: str, seconds: float, settings: Mapping[str, Any]) -> str:
    """What is wrong with a recovery that took so long; empty when it was in time."""
    limit = promised_seconds(kind, settings)
    return (
        f"relays worked again {seconds:.1f} s after {kind}, and have {limit:g} s for it"
        if seconds > limit
        else ""
    )

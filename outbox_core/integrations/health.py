"""What an application's health endpoints say of its relays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from outbox_core.relay.health import Health

NO_STORE: Final = {"cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class AppHealth:
    """The relays of one process taken together, with ``reasons`` for whatever is not as it should be.

    ``live``: none of them has died; one that has comes back only with a restart. ``ready``: every one runs, leading or
    standing by, and its database answers; an application that was started degraded is not ready, nor is one that has
    not started or is stopping. ``lagging``: one of them does not keep up. A process without relays is live and ready.
    """

    live: bool
    ready: bool
    lagging: bool
    reasons: tuple[str, ...] = ()
    relays: tuple[Health, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """For an answer over HTTP."""
        return {
            "live": self.live,
            "ready": self.ready,
            "lagging": self.lagging,
            "reasons": list(self.reasons),
            "relays": [relay.as_json() for relay in self.relays],
        }


class Probe(NamedTuple):
    """One endpoint: its path, its name, and what it answers now, as a status and a JSON object."""

    path: str
    name: str
    answer: Callable[[], tuple[int, dict[str, Any]]]


def probes(health: Callable[[], AppHealth], prefix: str) -> list[Probe]:
    """``<prefix>/live``, ``/ready`` and ``/lag``, which answer 200 when all is well and 503 when not."""

    def probe(name: str, good: Callable[[AppHealth], bool]) -> Probe:
        def answer() -> tuple[int, dict[str, Any]]:
            now = health()
            return (200 if good(now) else 503), now.as_json()

        return Probe(f"{prefix.rstrip('/')}/{name}", f"outbox_{name}", answer)

    return [
        probe("live", lambda now: now.live),
        probe("ready", lambda now: now.ready),
        probe("lag", lambda now: not now.lagging),
    ]

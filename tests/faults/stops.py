"""How long relays took to stop, by their own journals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faults.plan import GRACE

LIMIT_SECONDS = GRACE + 1.0
"""What a relay promises, with nothing on top."""


@dataclass(frozen=True, slots=True)
class Stop:
    """From SIGTERM, as the relay's process noted it, until `Relay.run` had returned."""

    relay: str
    seconds: float

    @property
    def slow(self) -> bool:
        return self.seconds > LIMIT_SECONDS

    def __str__(self) -> str:
        return f"{self.relay} took {self.seconds:.2f} s to stop, and may take {LIMIT_SECONDS:g} s"


def stops(events: Iterable[Mapping[str, Any]]) -> list[Stop]:
    """Every stop that came to its end, in a fault or when all was quiet; of a relay that never ran there is none."""
    told: dict[str, float] = {}
    found: list[Stop] = []
    for line in events:
        if line.get("name") == "Told":
            told.setdefault(line["relay"], line["at"])
        elif line.get("name") == "Ended" and line["relay"] in told:
            found.append(Stop(line["relay"], line["at"] - told.pop(line["relay"])))
    return found

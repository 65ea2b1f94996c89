"""How long the demonstration takes and when it breaks what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outbox_core.errors import ConfigError

SHORTEST: Final = 5.0
LONGEST: Final = 300.0
FASTEST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Orders come for ``duration`` seconds, ``rate`` of them a second, and every ``refused_every``-th is rolled back.

    The shares say for how much of that duration all is well at first, the broker is frozen before the relay is killed
    too (short, so that messages are under way), there is no relay, there is one again but no broker, and all is well
    again. What is left to deliver afterwards may take ``drain_timeout`` seconds.
    """

    duration: float = 16.0
    rate: int = 100
    refused_every: int = 7
    calm: float = 0.3
    frozen: float = 0.04
    dead: float = 0.18
    replaced: float = 0.18
    mended: float = 0.3
    drain_timeout: float = 20.0

    def __post_init__(self) -> None:
        if not SHORTEST <= self.duration <= LONGEST:
            raise ConfigError(
                f"the demonstration takes orders for {SHORTEST:g} s to {LONGEST:g} s, got {self.duration:g} s"
            )
        if not 1 <= self.rate <= FASTEST:
            raise ConfigError(f"the rate must be from 1 to {FASTEST} orders a second, got {self.rate}")

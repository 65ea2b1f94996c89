"""What happened in a simulated run: a trace, counters, and what must never happen."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Record:
    """Lines of the trace are deterministic: nothing in them depends on identifiers or addresses made at random."""

    seed: int
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    _closed: bool = False

    def close(self) -> None:
        """What comes now is clearing away."""
        self._closed = True

    def say(self, what: str) -> None:
        if not self._closed:
            self.trace.append(f"{self.now():.6f} {what}")

    def violated(self, rule: str, what: str) -> None:
        if self._closed:
            return
        self.violations.append(f"{rule} at {self.now():.3f}: {what}")
        self.say(f"VIOLATION {rule} {what}")

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

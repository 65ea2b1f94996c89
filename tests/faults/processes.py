"""The processes of a run, started anew as often as the nemesis ends them."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.moments import Act
from tests.services.run import Child, Command, Run

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Place:
    """Where one process is run, again and again. `name` is that of the process that runs now: `r1.3`, the third."""

    run: Run
    module: str
    base: str
    orders: dict[str, Any]
    log: Path
    environment: Mapping[str, str]
    child: Child | None = None
    name: str = ""
    planned_end: bool = False
    crashes: list[str] = field(default_factory=list[str])
    """Of processes that ended by themselves and were replaced, or met by a kill, after that."""
    _generations: itertools.count[int] = field(default_factory=itertools.count)

    def start(self, **orders: Any) -> None:
        self._notice()
        self.name = f"{self.base}.{next(self._generations)}"
        self.planned_end = False
        arguments = json.dumps(self.orders | self.at_start() | orders | {"name": self.name})
        self.child = self.run.launch(
            Command(
                name=self.base,
                port=0,
                arguments=[sys.executable, "-m", self.module, arguments],
                folder=ROOT,
                log=self.log,
                environment=self.environment,
            )
        )

    def at_start(self) -> dict[str, Any]:
        """Orders that differ each time."""
        return {}

    @property
    def running(self) -> Child:
        if self.child is None:
            raise RuntimeError(f"{self.base} has not been started")
        return self.child

    @property
    def exit_code(self) -> int | None:
        return self.running.exit_code

    def send(self, number: signal.Signals) -> None:
        self.running.process.send(number)

    async def freeze(self) -> None:
        """SIGSTOP; returns once it stands still."""
        await asyncio.to_thread(self.running.process.freeze)

    def thaw(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    async def kill(self) -> int | None:
        """SIGKILL; its exit code, -9 unless it had ended before."""
        self._notice()
        self.planned_end = True
        await asyncio.to_thread(self.running.kill)
        return self.exit_code

    async def terminate(self, within: float) -> int | None:
        """SIGTERM, and SIGKILL after so many seconds; its exit code."""
        self._notice()
        self.planned_end = True
        await asyncio.to_thread(self.running.terminate, signal.SIGTERM, timeout_s=within)
        return self.exit_code

    def _notice(self) -> None:
        if self.child is not None and self.exit_code is not None and not self.planned_end:
            self.planned_end = True
            self.crashes.append(f"{self.name} ended with {self.exit_code}")

    def unplanned_ends(self) -> list[str]:
        """Every process of this place that ended by itself, with its exit code."""
        self._notice()
        return list(self.crashes)


@dataclass(slots=True)
class RelayPlace(Place):
    """A relay tells the database its name when it connects, so that it can tell who wrote what."""

    dsn: str = ""

    def at_start(self) -> dict[str, Any]:
        return {"dsn": f"{self.dsn}?faults.relay={self.name}"}

    def order(self, point: str = "", nth: int = 1, act: Act = "kill") -> None:
        """Have the running relay do something to itself at a moment of its work, and tell its vitals now."""
        file = Path(self.orders["journal"]).with_name(f"{self.name}.order")
        file.write_text(json.dumps({"point": point, "nth": nth, "act": act}))
        self.send(signal.SIGUSR2)


@dataclass(slots=True)
class WriterPlace(Place):
    """A writer that is started again does not repeat itself."""

    seed: int = 0

    def at_start(self) -> dict[str, Any]:
        return {"seed": f"{self.seed}:{self.name}"}

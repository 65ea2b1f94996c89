"""The relay as a process of its own: ``outbox relay``, to be killed and replaced."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio

from outbox_core.demo.database import OUTBOX_TABLE
from outbox_core.embedded.guarded import Command, Guarded
from outbox_core.errors import EmbeddedServerError

# Shorter than the defaults, so that what a killed relay held is free again within the time of a demonstration.
_SETTINGS: Final = {
    "OUTBOX_RELAY_TABLES": str(OUTBOX_TABLE),
    "OUTBOX_RELAY_DISPATCH_TIMEOUT": "1500ms",
    "OUTBOX_RELAY_DATABASE_TIMEOUT": "2s",
    "OUTBOX_RELAY_LOCK_TTL": "7s",
    "OUTBOX_RELAY_TAKEOVER": "3s",
    "OUTBOX_RELAY_POLL_INTERVAL": "200ms",
    "OUTBOX_RELAY_BACKOFF_BASE": "250ms",
    "OUTBOX_RELAY_BACKOFF_CAP": "1s",
    "OUTBOX_RELAY_GRACE": "2s",
    "OUTBOX_CLEANER_ENABLED": "false",
}
_OTHERS: Final = ("OUTBOX_", "PROMETHEUS_")
_CHECK_INTERVAL: Final = 0.1


class RelayProcess:
    """At most one relay at a time, which logs to ``folder``. Nothing of the caller's own settings reaches it."""

    def __init__(self, database_url: str, nats_url: str, folder: Path) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)}
        self._environment = {
            **own,
            **_SETTINGS,
            "OUTBOX_DATABASE_URL": database_url,
            "OUTBOX_RELAY_TO": nats_url,
        }
        self._folder = folder
        self._running: Guarded | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            await self._running.stop()

    async def start(self) -> int:
        """Start one; its process id."""
        command = Command(
            name="relay",
            arguments=[sys.executable, "-m", "outbox_core.cli", "relay"],
            environment=self._environment,
            folder=self._folder,
            log=self._folder / "relay.log",
        )
        self._running = await Guarded.start(command)
        return self._running.pid

    async def kill(self) -> int:
        """``kill -9``, as a crash would; returns once it is gone, with the process id it had."""
        running, self._running = self._running, None
        if running is None:
            raise EmbeddedServerError("relay", "there is none to kill")
        await running.send(signal.SIGKILL)
        await running.stop()
        return running.pid

    async def watch(self) -> None:
        """Look on, until cancelled; raises when a relay has ended that nobody killed."""
        while True:
            if self._running is not None:
                self._running.check()
            await anyio.sleep(_CHECK_INTERVAL)

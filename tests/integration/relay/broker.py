"""A broker that writes down what reaches it. The topic of a message says what happens to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

from outbox_core.errors import PermanentError
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Event
from tests.integration.relay.faults import Faults
from tests.integration.relay.journal import Journal

SLOW_SECONDS = 0.3
DEAF_SECONDS = 3.0
REFUSED = "the broker refused this message"


class Broker:
    """Writes ``dispatch`` when a message arrives and ``ack`` when it is as good as delivered."""

    def __init__(self, journal: Journal, faults: Faults | None = None) -> None:
        self._journal = journal
        self._faults = faults or Faults(journal)
        self.refuses: set[str] = set()
        """Payload names of messages that are refused for now, whatever their topic."""
        self.let_go = asyncio.Event()
        """What messages of the topic `held` wait for."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        meta = message.meta
        details = {
            "table": meta.table,
            "sequence": meta.sequence,
            "key": meta.key,
            "attempts": meta.attempts,
            "event_id": str(meta.event_id),
        }
        self._faults.reached("dispatch.before")
        self._journal.write("dispatch", **details)
        await self._behave(meta.topic, meta.attempts)
        if message.json() in self.refuses:
            raise ValueError(REFUSED)
        self._journal.write("ack", **details)
        self._faults.reached("dispatch.acknowledged")

    async def _behave(self, topic: str, attempts: int) -> None:
        match topic:
            case "hesitant" if attempts == 1:
                raise ValueError(REFUSED)
            case "slow":
                await asyncio.sleep(SLOW_SECONDS)
            case "held":
                await self.let_go.wait()
            case "failing":
                raise ValueError(REFUSED)
            case "permanent":
                raise PermanentError(REFUSED)
            case "refused":
                await self.let_go.wait()
                raise PermanentError(REFUSED)
            case "hanging":
                await asyncio.Event().wait()
            case "deaf":
                await _ignore_cancellation(time.monotonic() + DEAF_SECONDS)
            case "poison":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                await asyncio.sleep(0)


async def _ignore_cancellation(until: float) -> None:
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


class Witness:
    """An observer that writes every event down."""

    def __init__(self, journal: Journal, faults: Faults | None = None) -> None:
        self._journal = journal
        self._faults = faults or Faults(journal)

    def __call__(self, event: Event) -> None:
        name = type(event).__name__
        details = {
            field: getattr(event, field)
            for field in (
                "rows",
                "term",
                "reason",
                "error",
                "retry_in",
                "abandoned",
                "write",
                "pid",
                "charged",
            )
            if hasattr(event, field)
        }
        if "pid" in details:
            details["session"] = details.pop("pid")
        self._journal.write("event", name=name, table=str(event.table), **details)
        self._faults.reached(f"observed.{name}")

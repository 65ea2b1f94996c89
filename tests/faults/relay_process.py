"""A real relay to a real broker, with a journal of what it tells its observers. Run with its orders as JSON.

SIGTERM stops it in order, SIGUSR1 makes it block its event loop for longer than a lease, and ``point`` names a moment
at which it kills itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outbox_core.cleaner import CleanerSettings
from outbox_core.dispatcher import Outcome
from outbox_core.errors import StorageTimeout, StorageUnavailable
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed, Dispatched, Event, LeaseLost, Measured, Published, Stopped
from outbox_core.relay import Relay
from outbox_core.relay.settings import RelaySettings
from outbox_core.store import Store
from outbox_core.stores.postgres.store import PostgresStore
from tests.faults import brokers
from tests.faults.plan import TABLE
from tests.integration.relay.faults import Faults, FaultyStore
from tests.integration.relay.journal import Journal

RETRY_SECONDS = 0.5
VITALS_SECONDS = 2.0
_DETAILS = ("term", "reason", "error", "retry_in", "abandoned", "write", "charged", "destination")


class Witness:
    """Writes down what happens, without the messages."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal = journal
        self._name = name
        self.heard = False
        """Whether the relay has begun its work."""

    def __call__(self, event: Event) -> None:
        # That it has stopped is told even when it could not begin.
        self.heard = self.heard or not isinstance(event, Stopped)
        kind = type(event).__name__
        details = {field: getattr(event, field) for field in _DETAILS if hasattr(event, field)}
        match event:
            case Measured() | Claimed() | Dispatched():
                return
            case Published():
                details |= {"rows": len(event.messages), "wall": time.time()}
            case LeaseLost():
                details["event_id"] = str(event.message.event_id)
            case _:
                pass
        self._journal.write("event", name=kind, relay=self._name, **details)


def dispatcher(orders: dict[str, Any], faults: Faults) -> Any:
    """The adapter as it is, with the moments around a window when one of them is meant."""
    adapter = brokers.dispatcher(orders["broker"], orders["address"], orders["settings"]["dispatch_timeout"])
    if orders["point"].startswith("dispatch."):
        window = adapter.dispatch_many

        async def dispatch_many(
            messages: Sequence[DispatchedMessage], /, *, deadline: float
        ) -> Sequence[Outcome]:
            return await faults.around("dispatch", lambda: window(messages, deadline=deadline))

        adapter.dispatch_many = dispatch_many
    return adapter


async def tell_vitals(journal: Journal, name: str) -> None:
    """What a leak would show in, every few seconds."""
    while True:
        journal.write("vitals", relay=name, tasks=len(asyncio.all_tasks()), **_of_process())
        await asyncio.sleep(VITALS_SECONDS)


def _of_process() -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = list(Path("/proc/self/fd").iterdir())
    return {"memory_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6, "files": len(files)}


async def main(orders: dict[str, Any]) -> None:
    journal = Journal(Path(orders["journal"]))
    faults = Faults(journal, orders["point"], orders["nth"])
    settings = RelaySettings(**orders["settings"])

    def faulty_store() -> Store:
        store = PostgresStore(
            orders["dsn"],
            timeout=settings.database_timeout,
            takeover=settings.takeover,
            name=f"outbox:public.{TABLE}",
        )
        return FaultyStore(store, faults)

    def block() -> None:
        journal.write("event", name="Blocked", relay=orders["name"])
        time.sleep(settings.lock_ttl + 1.0)

    witness = Witness(journal, orders["name"])
    relay = Relay(
        faulty_store if orders["point"] else orders["dsn"],
        table=TABLE,
        dispatcher=dispatcher(orders, faults),
        observers=[witness],
        cleaner=CleanerSettings(**orders["cleaner"]),
        **orders["settings"],
    )

    def leave() -> None:
        journal.write("event", name="Ended", relay=orders["name"])
        os._exit(0)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, block)
    loop.add_signal_handler(signal.SIGTERM, leave)  # until the relay itself answers to it
    journal.write("event", name="Running", relay=orders["name"])
    vitals = asyncio.create_task(tell_vitals(journal, orders["name"]))
    while True:
        try:
            await relay.run(grace=orders["grace"])
            break
        except (StorageUnavailable, StorageTimeout) as error:
            # A relay does not begin without its database, and whoever runs it tries again; once begun it bears it.
            if witness.heard:
                raise
            loop.add_signal_handler(signal.SIGTERM, leave)
            journal.write("event", name="NotStarted", relay=orders["name"], error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
    vitals.cancel()
    journal.write("event", name="Ended", relay=orders["name"])


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # whatever it would log, it tells its observers
    asyncio.run(main(json.loads(sys.argv[1])))

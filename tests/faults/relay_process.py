"""A real relay to a real broker, with a journal of what it tells its observers. Run with its orders as JSON.

SIGTERM stops it in order. SIGUSR2 lets it tell its vitals and read its orders anew, from a file beside its journal:
they name a moment of its work, and what it is to do to itself when that moment comes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from outbox_core.cleaner import CleanerSettings
from outbox_core.dispatcher import Outcome
from outbox_core.errors import StorageTimeout, StorageUnavailable
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed, Dispatched, Event, Failed, LeaseLost, Measured, Published, Stopped
from outbox_core.relay import Relay
from outbox_core.relay.settings import RelaySettings
from outbox_core.store import Store
from tests.faults import brokers
from tests.faults.moments import Moments, WatchedStore
from tests.faults.plan import BLOCK_MORE_SECONDS, TABLE
from tests.faults.relay_record import Account, RecordingStore
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
            case LeaseLost() | Failed():
                details["event_id"] = str(event.message.event_id)
            case _:
                pass
        self._journal.write("event", name=kind, relay=self._name, **details)


def dispatcher(orders: dict[str, Any], moments: Moments, account: Account) -> Any:
    """The adapter as it is, with the moments around a window, and a record of what it is given."""
    adapter = brokers.dispatcher(orders["broker"], orders["address"], orders["settings"]["dispatch_timeout"])
    window = adapter.dispatch_many

    async def dispatch_many(
        messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        async def send() -> Sequence[Outcome]:
            ids = [message.meta.event_id for message in messages]
            number = account.sends(ids)
            outcomes: Sequence[Outcome] = await window(messages, deadline=deadline)
            account.acknowledged(
                number, [each for each, outcome in zip(ids, outcomes, strict=True) if outcome is not None]
            )
            return outcomes

        return await moments.around("dispatch", send)

    adapter.dispatch_many = dispatch_many
    return adapter


class Vitals:
    """What a leak would show in, and how much was heard and asked for."""

    def __init__(self, journal: Journal, name: str, moments: Moments) -> None:
        self._journal = journal
        self._name = name
        self._moments = moments
        self.stores: list[WatchedStore] = []

    def tell(self) -> None:
        self._journal.write(
            "vitals",
            relay=self._name,
            tasks=len(asyncio.all_tasks()),
            hints=sum(store.hints for store in self.stores),
            claims=self._moments.claims,
            **_of_process(),
        )

    async def tell_for_ever(self) -> None:
        while True:
            self.tell()
            await asyncio.sleep(VITALS_SECONDS)


def _of_process() -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = list(Path("/proc/self/fd").iterdir())
    return {"memory_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6, "files": len(files)}


async def main(orders: dict[str, Any]) -> None:
    journal = Journal(Path(orders["journal"]))
    settings = RelaySettings(**orders["settings"])
    moments = Moments(journal, orders["name"], settings.lock_ttl + BLOCK_MORE_SECONDS)
    vitals = Vitals(journal, orders["name"], moments)
    account = Account(Journal(Path(orders["account"])), orders["name"])

    def store() -> Store:
        opened = WatchedStore(
            RecordingStore(
                orders["dsn"],
                account,
                timeout=settings.database_timeout,
                takeover=settings.takeover,
                name=f"outbox:public.{TABLE}",
            ),
            moments,
        )
        vitals.stores.append(opened)
        return opened

    def obey() -> None:
        told = json.loads(Path(orders["journal"]).with_name(f"{orders['name']}.order").read_text())
        moments.order(**told)
        vitals.tell()

    witness = Witness(journal, orders["name"])
    relay = Relay(
        store,
        table=TABLE,
        dispatcher=dispatcher(orders, moments, account),
        observers=[witness],
        cleaner=CleanerSettings(**orders["cleaner"]),
        **orders["settings"],
    )

    def leave() -> None:
        journal.write("event", name="NeverRan", relay=orders["name"])
        os._exit(0)

    loop: Any = asyncio.get_running_loop()
    listen = loop.add_signal_handler

    def heed(number: signal.Signals, callback: Callable[..., object], *arguments: object) -> None:
        """Whoever asks for SIGTERM gets it, the relay itself too, once it is on record that it came."""

        def told() -> None:
            if number == signal.SIGTERM:
                journal.write("event", name="Told", relay=orders["name"])
            callback(*arguments)

        listen(number, told)

    loop.add_signal_handler = heed
    loop.add_signal_handler(signal.SIGUSR2, obey)
    loop.add_signal_handler(signal.SIGTERM, leave)  # until the relay itself answers to it
    journal.write("event", name="Running", relay=orders["name"])
    telling = asyncio.create_task(vitals.tell_for_ever())
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
    telling.cancel()
    journal.write("event", name="Ended", relay=orders["name"])


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # whatever it would log, it tells its observers
    asyncio.run(main(json.loads(sys.argv[1])))

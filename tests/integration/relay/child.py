"""A relay in a process of its own, for tests that kill and freeze it. Run with its orders as one argument of JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from outbox_core.observer import Event
from outbox_core.relay import Relay
from outbox_core.relay.settings import RelaySettings
from outbox_core.store import Store
from outbox_core.stores.postgres.store import PostgresStore
from tests.integration.relay.broker import Broker, Witness
from tests.integration.relay.faults import Faults, FaultyStore
from tests.integration.relay.journal import Journal


async def main(orders: dict[str, Any]) -> None:
    journal = Journal(Path(orders["journal"]))
    act = signal.Signals(orders["act"])
    faults = Faults(journal, orders["point"], orders["nth"], act, orders["loses"])
    settings = RelaySettings(**orders["settings"])
    tables: list[str] = orders["tables"]

    def store() -> Store:
        real = PostgresStore(
            orders["dsn"],
            timeout=settings.database_timeout,
            takeover=settings.takeover,
            name=f"outbox:public.{tables[0]}",
        )
        return FaultyStore(real, faults)

    def stop_at_the_moment(event: Event) -> None:
        if type(event).__name__ == orders["stop_at"]:
            os.kill(os.getpid(), signal.SIGTERM)

    relay = Relay(
        store,
        tables=tables,
        dispatcher=Broker(journal, faults),
        observers=[Witness(journal, faults), stop_at_the_moment],
        **orders["settings"],
    )
    journal.write("running")
    await relay.run(grace=orders["grace"])
    journal.write("ended")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

"""What compose.yaml does, without containers: the schema, the relay and the service, each a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Final

import asyncpg
import nats
from nats.js.api import DeliverPolicy

from examples.environment import address
from examples.relay_process.service import TABLE, TOPIC, prepare, send
from outbox_nats import from_msg

OUTBOX: Final = (sys.executable, "-m", "outbox_core.cli")


async def main() -> None:
    database_url, nats_url = address("OUTBOX_DATABASE_URL"), address("NATS_URL")
    schema = await asyncio.create_subprocess_exec(*OUTBOX, "schema", "upgrade", "--table", TABLE)
    assert await schema.wait() == 0
    connection = await asyncpg.connect(database_url)
    await prepare(connection, nats_url)
    broker: Any = await nats.connect(nats_url, max_reconnect_attempts=1)
    subscription = await broker.jetstream().subscribe(TOPIC, deliver_policy=DeliverPolicy.NEW)

    settings = {"OUTBOX_RELAY_TABLES": TABLE, "OUTBOX_RELAY_TO": nats_url, "OUTBOX_RELAY_GRACE": "5s"}
    relay = await asyncio.create_subprocess_exec(*OUTBOX, "relay", env=os.environ | settings)
    try:
        async with asyncio.timeout(60):
            parcel = await send(connection)
            while from_msg(await subscription.next_msg(timeout=30)).json()["parcel"] != str(parcel):
                pass
        print(f"{TOPIC} of {parcel} is on NATS", flush=True)
    finally:
        # As an orchestrator does it: SIGTERM, and longer than the grace to obey.
        if relay.returncode is None:
            relay.terminate()
        async with asyncio.timeout(10):
            code = await relay.wait()
        await broker.close()
        await connection.close()
    assert code == 0, f"the relay ended with {code}"


if __name__ == "__main__":
    asyncio.run(main())

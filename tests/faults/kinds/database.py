"""PostgreSQL is restarted, crashed, frozen, locked, made read-only and flooded."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.faults.journal import NotHit
from tests.faults.plan import TABLE
from tests.faults.world import World

FEEL_SECONDS = 20.0
_RELAY_SESSIONS = "FROM pg_stat_activity WHERE application_name LIKE 'outbox:%'"


async def restart_postgres(world: World) -> str:
    """A fast shutdown and a start."""
    return await _back_again(world, lambda: world.postgres.restart())


async def kill_postgres(world: World) -> str:
    """SIGKILL to every process of the server; it recovers from its log when it is started again."""

    def crash() -> None:
        world.postgres.kill()
        world.postgres.start()

    return await _back_again(world, crash)


async def freeze_postgres(world: World) -> str:
    """SIGSTOP to every process of the server."""
    began = time.monotonic()
    await asyncio.to_thread(world.postgres.freeze)
    try:
        felt = await world.events.until(began, "Reconnecting", "LeaderLost", within=FEEL_SECONDS)
    finally:
        await asyncio.to_thread(world.postgres.thaw)
    return f"{felt[0]['name']} after {felt[0]['at'] - began:.1f} s"


async def terminate_sessions(world: World) -> str:
    """pg_terminate_backend of everything that relays have open: leadership, listener, workers."""
    async with world.admin() as admin:
        ended = await admin.fetchval(f"SELECT count(pg_terminate_backend(pid)) {_RELAY_SESSIONS}")
    if not ended:
        raise NotHit("no relay had a session")
    return f"ended {ended} sessions"


async def read_only_postgres(world: World) -> str:
    """Transactions may only read, as on a server that was demoted."""
    began = time.monotonic()
    await _read_only(world, "on")
    try:
        felt = await world.events.until(began, "Reconnecting", within=FEEL_SECONDS)
    finally:
        await _read_only(world, "off")
    return f"relays said {felt[0]['error'][:60]!r}"


async def lock_table(world: World) -> str:
    """Somebody holds the table for longer than a statement may wait."""
    began = time.monotonic()
    async with world.admin() as admin:
        await admin.execute("BEGIN")
        await admin.execute(f"LOCK TABLE {TABLE} IN EXCLUSIVE MODE")
        waiting = await _until(
            admin, f"SELECT count(*) {_RELAY_SESSIONS} AND wait_event_type = 'Lock'", "no relay waits for it"
        )
        (felt, *_) = await world.events.until(began, "Reconnecting", "LeaderLost", within=FEEL_SECONDS)
        await admin.execute("ROLLBACK")
    return f"{waiting} relay sessions waited, until one said {felt['name']}"


async def long_transaction(world: World) -> str:
    """An old snapshot keeps every dead row version from being removed."""
    async with world.admin() as admin, world.admin() as other:
        await admin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        pid = await admin.fetchval("SELECT pg_backend_pid() FROM pg_current_xact_id()")
        began = time.monotonic()
        await asyncio.sleep(4.0)
        published = sum(line["rows"] for line in world.events.since(began, "Published"))
        behind = await other.fetchval("SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = $1", pid)
        await admin.execute("ROLLBACK")
    if not behind or not published:
        raise NotHit(f"the snapshot was {behind} transactions old and {published} messages were published")
    return f"{published} messages published past a snapshot {behind} transactions old"


async def notify_storm(world: World) -> str:
    """Thousands of notifications that mean nothing, on the channel that relays listen to."""
    async with world.admin() as admin:
        for storm in range(20):
            await admin.execute(
                "SELECT pg_notify('outbox', $1 || number) FROM generate_series(1, 250) AS number",
                f"public.{TABLE} {storm} ",
            )
            await admin.execute("SELECT pg_notify('outbox', $1)", f"public.{TABLE}")
        used = await admin.fetchval("SELECT pg_notification_queue_usage()")
    return f"5020 notifications; {used:.2%} of the queue in use afterwards"


async def _back_again(world: World, restart: Any) -> str:
    began = time.monotonic()
    before = await _started(world)
    await asyncio.to_thread(restart)
    if await _started(world) == before:
        raise NotHit("the server was not started again")
    felt = await world.events.until(began, "Reconnecting", "LeaderLost", within=FEEL_SECONDS)
    return f"back after {time.monotonic() - began:.1f} s; relays said {felt[0]['name']}"


async def _started(world: World) -> Any:
    async with world.admin() as admin:
        return await admin.fetchval("SELECT pg_postmaster_start_time()")


async def _read_only(world: World, value: str) -> None:
    async with world.admin() as admin:
        await admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        await admin.execute("SELECT pg_reload_conf()")


async def _until(admin: Any, query: str, otherwise: str) -> int:
    deadline = time.monotonic() + FEEL_SECONDS
    while not (found := await admin.fetchval(query)):
        if time.monotonic() > deadline:
            raise NotHit(f"{otherwise} within {FEEL_SECONDS:g} s")
        await asyncio.sleep(0.05)
    return int(found)


FAULTS = (
    restart_postgres, kill_postgres, freeze_postgres, terminate_sessions, read_only_postgres, lock_table,
    long_transaction, notify_storm,
)  # fmt: skip

"""PostgreSQL is restarted, crashed, frozen, locked, made read-only and flooded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from tests.faults.journal import Line, NotHit, eventually, promised
from tests.faults.kinds.anew import connected_anew
from tests.faults.plan import TABLE
from tests.faults.world import World

FEEL_SECONDS = 20.0
PAST_SNAPSHOT = 100
PAST_SECONDS = 30.0
STORM = 10_000
HINTS_A_CLAIM = 5
"""So many hints, at least, that come soon after one another are answered by one look."""
_STORM = f"""
DO $$
BEGIN
    FOR number IN 1..{STORM} LOOP
        PERFORM pg_notify('outbox', 'public.{TABLE}');
        COMMIT;
    END LOOP;
END
$$
"""
"""A transaction each: what is said twice in one is heard once."""
_RELAY_SESSIONS = "FROM pg_stat_activity WHERE application_name LIKE 'outbox:%'"
_LEADERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"


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
    """pg_terminate_backend of everything that relays have open: leadership, listener, workers. All connect anew."""
    relay = await world.until_leader()
    await world.until_running()
    began = time.monotonic()
    accepted = {proxy: proxy.accepted for proxy in world.relay_proxies}
    async with world.admin() as admin:
        locks = await admin.fetchval(f"SELECT count(*) {_RELAY_SESSIONS} AND pid IN ({_LEADERS})")
        found = await admin.fetch(f"SELECT pid, pg_terminate_backend(pid) {_RELAY_SESSIONS}")
        ended = [pid for pid, _ in found]
        if not ended or locks < world.plan.ordered:
            raise NotHit(f"relays had {len(ended)} sessions, with {locks} locks of a leader")
        await _until(
            admin,
            f"SELECT 1 WHERE NOT EXISTS (SELECT {_RELAY_SESSIONS} AND pid = ANY ($1))",
            "not all ended",
            ended,
        )
        world.back = time.monotonic()
        said = await connected_anew(world, relay, began, accepted)
    return f"ended {len(ended)} sessions, {locks} of them a leader's{said}; {len(accepted)} relays connected anew"


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
    """An old snapshot keeps every dead row version from being removed, while many messages pass by it."""
    async with world.admin() as admin, world.admin() as other:
        await admin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        pid = await admin.fetchval("SELECT pg_backend_pid() FROM pg_current_xact_id()")
        began = time.monotonic()

        def published() -> int:
            return sum(line["rows"] for line in world.events.since(began, "Published"))

        await eventually(
            lambda: published() >= PAST_SNAPSHOT,
            PAST_SECONDS,
            f"not {PAST_SNAPSHOT} messages passed the snapshot",
        )
        behind = await other.fetchval("SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = $1", pid)
        await admin.execute("ROLLBACK")
    if not behind or behind < PAST_SNAPSHOT / 2:
        raise NotHit(f"the snapshot was only {behind} transactions old")
    return f"{published()} messages published past a snapshot {behind} transactions old"


async def notify_storm(world: World) -> str:
    """Thousands of notifications: relays hear those that mean something, and do not ask the database for each."""
    await world.until_leader()
    await world.until_running()
    before = await _vitals(world, {})  # whoever begins to listen is told to look once
    began = time.monotonic()
    async with world.admin() as admin:
        await admin.execute("SET synchronous_commit = off")
        await admin.execute(
            "SELECT pg_notify('outbox', $1 || number) FROM generate_series(1, 5000) AS number",
            f"public.{TABLE} ",
        )
        await admin.execute(_STORM)
    world.back = time.monotonic()
    seconds = world.back - began
    await world.events.until(began, "Published", within=FEEL_SECONDS)
    heard = {name: line["hints"] + STORM for name, line in before.items()}
    after = await _vitals(world, heard)
    told = {name: _storm_of(before[name], line) for name, line in after.items()}
    rash = [relay for relay, (hints, claims) in told.items() if claims > hints / HINTS_A_CLAIM]
    if rash:
        raise AssertionError(f"a storm of hints became one of claims in {', '.join(rash)}: {told}")
    claims = sum(claims for _, claims in told.values())
    rows = sum(line["rows"] for line in world.events.since(began, "Published"))
    return (
        f"{len(told)} relays heard {STORM} hints of {STORM + 5000} notifications in {seconds:.1f} s,"
        f" sent {claims} claims and published {rows} messages meanwhile"
    )


async def _vitals(world: World, hints: Mapping[str, int]) -> dict[str, Line]:
    """What each relay tells of itself once it has heard so many hints since its start."""
    deadline = time.monotonic() + FEEL_SECONDS
    while True:
        lines = await _told(world)
        deaf = [name for name, line in lines.items() if line["hints"] < hints.get(name, 1)]
        if not deaf:
            return lines
        if time.monotonic() > deadline:
            raise NotHit(f"{', '.join(deaf)} did not hear all hints within {FEEL_SECONDS:g} s")
        await asyncio.sleep(0.1)


async def _told(world: World) -> dict[str, Line]:
    asked = time.monotonic()
    for relay in world.relays:
        relay.order()

    def told() -> dict[str, Line]:
        lines = {line["relay"]: line for line in world.events.since(asked, kind="vitals")}
        return lines if {relay.name for relay in world.relays} <= lines.keys() else {}

    lines: dict[str, Line] = await eventually(told, FEEL_SECONDS, "a relay did not tell how it is")
    return lines


def _storm_of(before: Line, after: Line) -> tuple[int, int]:
    """Hints that were heard, and claims that were sent, between two lines of a relay."""
    return after["hints"] - before["hints"], after["claims"] - before["claims"]


async def _back_again(world: World, restart: Any) -> str:
    began = time.monotonic()
    before = await _started(world)
    await asyncio.to_thread(restart)
    world.back = time.monotonic()
    if await _started(world) == before:
        raise NotHit("the server was not started again")
    with promised():
        felt = await world.events.until(began, "Reconnecting", "LeaderLost", within=FEEL_SECONDS)
    return f"back after {time.monotonic() - began:.1f} s; relays said {felt[0]['name']}"


async def _started(world: World) -> Any:
    async with world.admin() as admin:
        return await admin.fetchval("SELECT pg_postmaster_start_time()")


async def _read_only(world: World, value: str) -> None:
    async with world.admin() as admin:
        await admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        await admin.execute("SELECT pg_reload_conf()")


async def _until(admin: Any, query: str, otherwise: str, *parameters: object) -> int:
    deadline = time.monotonic() + FEEL_SECONDS
    while not (found := await admin.fetchval(query, *parameters)):
        if time.monotonic() > deadline:
            raise NotHit(f"{otherwise} within {FEEL_SECONDS:g} s")
        await asyncio.sleep(0.05)
    return int(found)


FAULTS = (
    restart_postgres, kill_postgres, freeze_postgres, terminate_sessions, read_only_postgres, lock_table,
    long_transaction, notify_storm,
)  # fmt: skip

"""A cleaner whose process is killed within a pass has deleted what it was to delete, and is in nobody's way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from outbox_core.cleaner import Cleaner, CleanerSettings, Pass
from tests.integration.yard import TABLE, Yard
from tests.kit.waiting import until

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

ROOT = Path(__file__).parents[2]
SETTINGS = CleanerSettings(retention=60, batch=100)
OLD = 450
GATE = 42
_CHILD = """
    import asyncio, os, signal, sys
    from outbox_core.cleaner import Cleaner, CleanerSettings
    from outbox_core.stores.postgres.admin_store import PostgresAdminStore

    batches = 0

    def die(done):
        global batches
        batches += 1
        if batches == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        async with PostgresAdminStore.connect(sys.argv[1], "{table}") as store:
            await Cleaner(store, "{table}", CleanerSettings(retention=60, batch=100)).clean(progress=die)

    asyncio.run(main())
"""


@asynccontextmanager
async def cleaning(yard: Yard, *, dies_after: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A pass in a process of its own, which kills itself after so many batches; 0 when somebody else has to."""
    script = textwrap.dedent(_CHILD.format(table=TABLE))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, yard.dsn, str(dies_after), cwd=ROOT
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def bystanders(yard: Yard) -> dict[UUID, asyncpg.Record]:
    """Messages that no pass may delete: too recent, dead, not delivered yet."""
    await yard.add("published", 4, age=30, earlier=10_000)
    await yard.add("dead", 3, age=10_000)
    await yard.add("pending", 2, age=10_000)
    await yard.add("in_flight", 1, age=10_000)
    return await yard.rows()


async def test_killed_between_two_batches(yard: Yard) -> None:
    others = await bystanders(yard)
    old = await yard.add("published", OLD)
    async with cleaning(yard, dies_after=2) as child:
        assert await asyncio.wait_for(child.wait(), 30) == -signal.SIGKILL
    rows = await yard.rows()
    left = len(rows) - len(others)
    assert 0 < left < OLD
    assert rows.items() >= others.items()
    assert set(rows) <= {*others, *old}
    assert await Cleaner(yard.admin_store, TABLE, SETTINGS).clean() == Pass(published=left)
    assert await yard.rows() == others


async def test_killed_while_a_batch_is_being_deleted(yard: Yard) -> None:
    """The server is at it for a client that has gone: the next one has to wait for that batch, and for nothing else."""
    others = await bystanders(yard)
    old = await yard.add("published", OLD)
    await _hold_up_the_deletion_of(yard, old[OLD // 2])
    async with cleaning(yard, dies_after=0) as child:
        await until(lambda: _is_held_up(yard), 30.0)
        child.kill()
        assert await asyncio.wait_for(child.wait(), 30) == -signal.SIGKILL
    rows = await yard.rows()
    assert old[OLD // 2] in rows
    assert len(others) < len(rows) < len(others) + OLD
    assert rows.items() >= others.items()
    successor = Cleaner(yard.admin_store, TABLE, SETTINGS)
    assert await successor.clean() == Pass(busy=True)
    await yard.connection.execute("SELECT pg_advisory_unlock($1)", GATE)

    async def is_taken_over() -> bool:
        return not (await successor.clean()).busy

    await until(is_taken_over, 5.0)
    assert await yard.rows() == others


async def _hold_up_the_deletion_of(yard: Yard, event_id: UUID) -> None:
    """Whoever deletes this message waits in the server, half-way through its batch, until the gate is opened."""
    await yard.connection.execute(f"""
        CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN OLD; END';
        CREATE TRIGGER gate BEFORE DELETE ON {TABLE} FOR EACH ROW
        WHEN (OLD.event_id = '{event_id}') EXECUTE FUNCTION wait_at_gate();
        SELECT pg_advisory_lock({GATE});
    """)


async def _is_held_up(yard: Yard) -> bool:
    found: bool = await yard.connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory')"
    )
    return found

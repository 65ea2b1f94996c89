"""The primary dies and its stand-by takes over: the relay finds it by itself and loses nothing that was committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.conftest import skipped_or_failed_when_missing
from tests.integration.relay.broker import Broker
from tests.integration.relay.trial import Trial
from tests.kit.waiting import until
from tests.services.postgres import PostgresServer
from tests.services.session import Services
from tests.services.standby import StandbyServer

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres, pytest.mark.timeout(60)]

BACK_WITHIN = 10.0
"""Seconds after the promotion. 5 are promised; the rest is for a busy machine, on which the test writes as well."""
PATIENT: dict[str, Any] = {"lock_ttl": 30.0, "dispatch_timeout": 20.0}
"""A lease outlasts the failover: what was in flight when the primary died is put on record on the new one, once."""


@pytest.fixture
def standby(services: Services, private_postgres: PostgresServer) -> Iterator[StandbyServer]:
    with skipped_or_failed_when_missing(), services.standby(private_postgres) as server:
        yield server


@pytest.mark.parametrize("silent", [False, True], ids=["killed", "silent"])
async def test_a_relay_follows_to_the_promoted_stand_by(
    private_postgres: PostgresServer, standby: StandbyServer, tmp_path: Path, silent: bool
) -> None:
    """A primary that is silent is not refused: whoever asks it waits, and has to ask the other one at some time."""
    primary = private_postgres
    both = (
        f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        "?target_session_attrs=read-write"
    )
    async with Trial.opened(both, tmp_path) as trial:
        await _replicate_synchronously(trial)
        broker = Broker(trial.journal)
        async with trial.running(broker=broker, **PATIENT):
            before = await trial.enqueue(20)
            await trial.until_published(20)
            (in_flight,) = await trial.enqueue(1, "held")
            await until(lambda: _dispatched(trial, in_flight) == 1, 5.0, "the dispatch")
            waiting = await trial.enqueue(5, delay=1.0)
            term = await trial.term()

            await asyncio.to_thread(primary.freeze if silent else primary.kill)
            broker.let_go.set()
            await until(lambda: bool(trial.journal.events("LeaderLost")), 5.0, "stepping down")
            await _takes_no_writes(standby)
            looked = len(trial.journal.events("Reconnecting"))
            await until(
                lambda: len(trial.journal.events("Reconnecting")) > looked, 5.0, "looking for a server"
            )

            await asyncio.to_thread(standby.promote)
            promoted = time.monotonic()
            trial.direct = standby.address
            await trial.reconnect()
            after = await trial.enqueue(20)
            await trial.until_published(46, BACK_WITHIN)
            assert time.monotonic() - promoted < BACK_WITHIN
            assert await trial.admin.fetchval("SELECT inet_server_port()") == standby.port
            if silent:
                await asyncio.to_thread(primary.kill)
            assert not primary.processes
        rows = await trial.rows()
        assert rows.keys() == {*before, in_flight, *waiting, *after}, "a commit did not outlive its server"
        assert sorted(trial.journal.delivered()) == sorted(rows)
        assert {row["attempts"] for row in rows.values()} == {1}
        assert await trial.term() > term, "nobody was elected on the new server"


async def _replicate_synchronously(trial: Trial) -> None:
    """From now on a commit that was answered is on the stand-by too."""
    await trial.admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await trial.admin.execute("SELECT pg_reload_conf()")

    async def synchronous() -> bool:
        state: str | None = await trial.admin.fetchval("SELECT sync_state FROM pg_stat_replication")
        return state == "sync"

    await until(synchronous, 10, "a synchronous stand-by")


async def _takes_no_writes(standby: StandbyServer) -> None:
    connection = await asyncpg.connect(standby.address, timeout=5)
    try:
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await connection.execute("CREATE TABLE anything ()")
    finally:
        await connection.close()


def _dispatched(trial: Trial, sequence: int) -> int:
    return sum(line["sequence"] == sequence for line in trial.journal.read("dispatch"))

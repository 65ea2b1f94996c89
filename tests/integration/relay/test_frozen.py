"""A relay's process is stopped and goes on later, as under a debugger, a paused machine or an overcommitted host."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.integration.relay.broker import Broker
from tests.integration.relay.trial import Trial
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import until
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio

SLACK = 2.0
PATIENT: dict[str, Any] = {"database_timeout": 1.2, "lock_ttl": 4.0}
LARGE = 400_000
"""Characters of a message so large that a few of them do not fit in the buffers between server and client."""


@pytest.mark.parametrize("single_active", [True, False], ids=["leader", "worker"])
async def test_what_a_frozen_relay_writes_too_late_is_refused_and_counted(
    trial: Trial, single_active: bool
) -> None:
    await trial.enqueue(4)
    async with trial.child("publish.before", act=signal.SIGSTOP, single_active=single_active) as zombie:
        await zombie.until_seen("fault")
        async with trial.running(single_active=single_active):
            await trial.until_published(4)
            published = {sequence: row["published_at"] for sequence, row in (await trial.rows()).items()}
            zombie.send(signal.SIGCONT)
            await zombie.until_seen("event", count=4, name="LeaseLost", write="publish")
            rows = await trial.rows()
    assert {sequence: row["published_at"] for sequence, row in rows.items()} == published
    assert all(row["attempts"] == 2 for row in rows.values())
    assert not zombie.seen("event", name="Published")
    assert len(zombie.seen("event", name="LeaseLost")) == 4
    assert len(trial.journal.delivered()) == 8


async def test_a_frozen_relay_does_not_answer_for_the_one_that_has_its_row_now(trial: Trial) -> None:
    await trial.enqueue(1)
    broker = Broker(trial.journal)
    async with trial.child("publish.before", act=signal.SIGSTOP, single_active=False) as zombie:
        await zombie.until_seen("fault")
        await trial.admin.execute(
            "UPDATE orders_outbox SET topic = 'held', locked_at = locked_at - interval '1 minute'"
        )
        async with trial.running(broker=broker, single_active=False, dispatch_timeout=5.0, lock_ttl=8.0):
            await until(lambda: len(trial.journal.read("dispatch")) == 2, 5.0, "the second dispatch")
            zombie.send(signal.SIGCONT)
            await zombie.until_seen("event", 4.0, name="LeaseLost", write="publish")
            assert await trial.count("published_at IS NULL AND lock_token IS NOT NULL") == 1
            broker.let_go.set()
            await trial.until_published(1)


async def test_a_thawed_relay_dispatches_nothing_of_its_old_leases(trial: Trial) -> None:
    sequences = await trial.enqueue(6, key="k")
    async with trial.child("dispatch.acknowledged", act=signal.SIGSTOP) as zombie:
        await zombie.until_seen("fault")
        before = len(zombie.seen("dispatch"))
        async with trial.running():
            await trial.until_published(6)
            zombie.send(signal.SIGCONT)
            await zombie.until_seen("event", name="LeaseLost")
            await zombie.until_seen("event", name="LeaderLost")
            assert len(zombie.seen("dispatch")) == before == 1
    delivered = trial.journal.delivered()
    assert list(dict.fromkeys(delivered)) == sequences
    assert len(delivered) == len(sequences) + 1


async def test_a_relay_frozen_before_its_claim_is_sent_claims_nothing_when_it_goes_on(trial: Trial) -> None:
    async with trial.child("claim.before", nth=3, act=signal.SIGSTOP) as zombie:
        await zombie.until_leading()
        await zombie.until_seen("fault")
        async with trial.running():
            await trial.enqueue(3)
            await trial.until_published(3)
            await trial.enqueue(1, "hanging")
            zombie.send(signal.SIGCONT)
            await zombie.until_seen("event", name="LeaderLost")
    assert not zombie.seen("event", name="Claimed")
    assert not zombie.seen("dispatch")


@pytest.mark.parametrize("single_active", [True, False], ids=["leader", "worker"])
@pytest.mark.parametrize("transport", ["tcp", "unix"])
async def test_a_relay_frozen_while_it_receives_rows_does_not_keep_them(
    trial: Trial, database: Database, single_active: bool, transport: str
) -> None:
    """Its server process waits for the client to read, with the rows and the leader's row locked, and no timeout of
    PostgreSQL ends that. Over TCP the kernel does, over a unix socket only another relay."""
    dsn = trial.dsn if transport == "tcp" else _over_unix_socket(database)
    await trial.enqueue(20, payload="x" * LARGE)
    async with (
        trial.gate(closed=True) as gate,
        trial.child(dsn=dsn, single_active=single_active, **PATIENT) as frozen,
    ):
        await gate.until_waiting()
        frozen.send(signal.SIGSTOP)
        await gate.open()
        frozen_at = time.monotonic()
        pid = await trial.until_session("wait_event = 'ClientWrite'")
        async with trial.running(single_active=single_active, **PATIENT):
            await trial.until_published(20, 15.0)
            seconds = time.monotonic() - frozen_at
            assert not await trial.sessions(f"pid = {pid}")
            if transport == "unix" and not single_active:
                assert trial.journal.events("SessionEnded", session=pid)
            frozen.send(signal.SIGCONT)
            await frozen.until_seen("event", name="Reconnecting")
    limit = QUICK_TAKEOVER["takeover"] if single_active else 1.5 * PATIENT["lock_ttl"]
    assert seconds < limit + SLACK
    assert all(row["attempts"] == 1 for row in (await trial.rows()).values())


def _over_unix_socket(database: Database) -> str:
    server = database.server
    if not server.port:
        pytest.skip("the socket of a server that this run did not start is not known")
    return f"postgresql://postgres@/{database.name}?host={server.socket_folder}&port={server.port}"

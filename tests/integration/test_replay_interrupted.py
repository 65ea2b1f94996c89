"""Replay and discard that are broken off, whatever happens half-way, go on where they were."""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from outbox_core.dead_letters import AuditRecord, DeadLetters, Outcome
from outbox_core.errors import ConfigError, PlanMismatch, StorageTimeout, StorageUnavailable
from outbox_core.observer import Replayed
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.table import TableName
from tests.integration.yard import ALL, BECAUSE, TABLE, Yard, replays

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

ROOT = Path(__file__).parents[2]


class Flaky(PostgresAdminStore):
    """An admin store whose answers get lost: every other batch is done, and then there is no saying so."""

    calls = 0
    always = False

    async def advance(self, table: TableName, record: AuditRecord) -> AuditRecord | None:
        self.calls += 1
        if self.always:
            raise StorageUnavailable("the database is away")
        advanced = await super().advance(table, record)
        if self.calls % 2:
            raise StorageTimeout("no answer")
        return advanced


def flaky(yard: Yard) -> Flaky:
    return Flaky(yard.admin_store._sessions)


async def test_a_replay_goes_on_after_lost_answers(yard: Yard) -> None:
    await yard.add("dead", 1700)
    plan = await yard.letters.plan(ALL)
    admin_store = flaky(yard)
    outcome = await DeadLetters(admin_store, TABLE).replay(plan, **BECAUSE)
    assert outcome.changed == 1700
    assert await replays(yard) == {1: 1700}
    assert admin_store.calls > outcome.record.batches


async def test_a_database_that_stays_away_ends_the_call_and_not_the_plan(yard: Yard) -> None:
    await yard.add("dead", 3)
    plan = await yard.letters.plan(ALL)
    admin_store = flaky(yard)
    admin_store.always = True
    with pytest.raises(StorageUnavailable):
        await DeadLetters(admin_store, TABLE).replay(plan, **BECAUSE)
    (record,) = await yard.letters.history(unfinished=True)
    assert (record.id, record.changed, record.skipped) == (plan.id, 0, 0)
    assert (await yard.letters.resume(plan.id)).changed == 3


@pytest.mark.parametrize("action", ["replay", "discard"])
async def test_a_killed_process_is_taken_over(yard: Yard, action: str) -> None:
    await yard.add("dead", 1700)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(f"""
            import asyncio, os, signal, sys
            from outbox_core.dead_letters import DeadLetters, Filter
            from outbox_core.stores.postgres.admin_store import PostgresAdminStore

            def die(record):
                if record.batches == 2:
                    os.kill(os.getpid(), signal.SIGKILL)

            async def main():
                async with PostgresAdminStore.connect(sys.argv[1]) as store:
                    letters = DeadLetters(store, "{TABLE}")
                    plan = await letters.plan(Filter(everything=True))
                    await letters.{action}(plan, actor="child", reason="first try", progress=die)

            asyncio.run(main())
        """),
        yard.dsn,
        cwd=ROOT,
    )
    assert await asyncio.wait_for(child.wait(), 30) == -signal.SIGKILL
    (record,) = await yard.letters.history(unfinished=True)
    assert (record.changed, record.actor, record.action.value) == (1000, "child", action)
    with pytest.raises(ConfigError, match="actor and reason together"):
        await yard.letters.resume(record.id, actor="bob")
    outcome = await yard.letters.resume(record.id, actor="bob", reason="the first host died")
    assert (outcome.changed, outcome.changed_now, outcome.skipped) == (1700, 700, 0)
    assert await yard.states() == ({"pending": 1700} if action == "replay" else {})
    assert await replays(yard) == ({1: 1700} if action == "replay" else {})
    assert await yard.letters.history(unfinished=True) == []


async def test_a_cancelled_call_goes_on_with_the_same_plan_and_pace(yard: Yard) -> None:
    await yard.add("dead", 1200)
    plan = await yard.letters.plan(ALL)
    task: asyncio.Task[Outcome] | None = None

    def cancel(record: AuditRecord) -> None:
        assert task is not None
        task.cancel()

    task = asyncio.create_task(yard.letters.replay(plan, rate=100, progress=cancel, **BECAUSE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await yard.states())["pending"] == 500
    outcome = await yard.letters.replay(plan, actor="grace", reason="again")
    assert (outcome.changed, outcome.changed_now, outcome.record.actor) == (1200, 700, "ada")
    moments = sorted(row["available_at"] for row in (await yard.rows()).values())
    assert moments[-1] - moments[0] == timedelta(seconds=11.99)
    assert [event.rows for event in yard.heard if isinstance(event, Replayed)] == [500, 700]


async def test_resuming_what_is_not_there(yard: Yard) -> None:
    with pytest.raises(PlanMismatch, match="no record"):
        await yard.letters.resume(uuid4())

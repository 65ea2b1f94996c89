"""A relay is killed at every named moment of its work. Whatever the moment, nothing is lost and nothing is made up."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.relay.crashes import CRASHES, Crash
from tests.integration.relay.trial import Trial
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import until
from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.postgres, pytest.mark.timeout(120)]

MESSAGES = 6
KEYED = 4
CHILDREN_AT_ONCE = 4
PATIENT: dict[str, Any] = {"database_timeout": 1.2, "lock_ttl": 4.0}
"""Several processes start at once here; what a slow start costs is not the question."""


@dataclass
class Aftermath:
    committed: set[int]
    rolled_back: set[int]
    exit_code: int
    faults: list[dict[str, Any]]
    lost: list[dict[str, Any]]
    after_crash: dict[int, asyncpg.Record]
    rows: dict[int, asyncpg.Record]
    delivered: list[int]
    dispatches: list[dict[str, Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aftermaths(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[Crash, Aftermath]]:
    """Every crash once, each on a table of its own, and then one relay that serves all the tables."""
    tables = {crash: f"crash_{number}_outbox" for number, crash in enumerate(CRASHES)}
    name = f"outbox_crashes_{postgres_server.port or 'foreign'}"
    with postgres_server.fresh_database(name) as database:
        folder = tmp_path_factory.mktemp("crashes")
        async with Trial.opened(database.dsn, folder, *tables.values()) as trial:
            prepared = {crash: await _prepare(trial, crash, table) for crash, table in tables.items()}
            room = asyncio.Semaphore(CHILDREN_AT_ONCE)

            async def crash_one(crash: Crash) -> None:
                async with room:
                    await _crash(trial, crash, tables[crash], prepared[crash])

            await asyncio.gather(*map(crash_one, CRASHES))
            for crash, table in tables.items():
                prepared[crash].after_crash = await trial.rows(table)
            await trial.admin.execute(
                ";".join(f"UPDATE {table} SET topic = 'ok'" for table in tables.values())  # noqa: S608
            )
            async with trial.running(tables=list(tables.values()), **PATIENT):
                for crash, table in tables.items():
                    await trial.until_published(len(prepared[crash].committed), 25.0, table)
            for crash, table in tables.items():
                aftermath = prepared[crash]
                aftermath.rows = await trial.rows(table)
                aftermath.delivered = trial.journal.delivered(table=f"public.{table}")
                aftermath.dispatches = trial.journal.read("dispatch", table=f"public.{table}")
            yield prepared


async def _prepare(trial: Trial, crash: Crash, table: str) -> Aftermath:
    committed = await trial.enqueue(MESSAGES - KEYED, crash.topic, table=table)
    rolled_back = await trial.roll_back(2, table=table)
    committed += await trial.enqueue(KEYED, crash.topic, table=table, key="k")
    return Aftermath(set(committed), set(rolled_back), 0, [], [], {}, {}, [], [])


async def _crash(trial: Trial, crash: Crash, table: str, aftermath: Aftermath) -> None:
    options = PATIENT | ({"concurrency": 1} if crash.stop_at == "Claimed" else {})
    async with trial.child(
        crash.point, nth=crash.nth, tables=[table], stop_at=crash.stop_at, loses=crash.loses, **options
    ) as child:
        try:
            aftermath.exit_code = await child.ended(25.0)
        except TimeoutError:
            raise AssertionError(f"the moment to die at did not come: {crash.name}") from None
        aftermath.faults = child.seen("fault")
        aftermath.lost = child.seen("lost")


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.name)
async def test_a_crash_loses_nothing_and_makes_nothing_up(
    aftermaths: dict[Crash, Aftermath], crash: Crash, record_property: Callable[[str, object], None]
) -> None:
    aftermath = aftermaths[crash]
    assert aftermath.exit_code == -signal.SIGKILL
    assert [fault["point"] for fault in aftermath.faults] == [crash.point]
    assert [lost["step"] for lost in aftermath.lost] == ([crash.loses] if crash.loses else [])

    assert set(aftermath.delivered) == aftermath.committed
    assert not set(aftermath.delivered) & aftermath.rolled_back
    assert all(row["published_at"] and not row["dead_at"] for row in aftermath.rows.values())

    repeated = [sequence for sequence, times in Counter(aftermath.delivered).items() if times > 1]
    assert not repeated or crash.may_repeat
    charged = [sequence for sequence, row in aftermath.after_crash.items() if row["attempts"]]
    assert not charged or crash.may_charge
    record_property("crashes", 1)


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.name)
async def test_every_dispatch_was_counted_before_it_began(
    aftermaths: dict[Crash, Aftermath], crash: Crash
) -> None:
    aftermath = aftermaths[crash]
    begun = Counter(line["sequence"] for line in aftermath.dispatches)
    for sequence, row in aftermath.rows.items():
        assert begun[sequence] <= row["attempts"] <= QUICK_TAKEOVER["max_attempts"]
        numbers = [line["attempts"] for line in aftermath.dispatches if line["sequence"] == sequence]
        assert numbers == sorted(set(numbers)), "an attempt's number was used twice"


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.name)
async def test_the_order_of_a_key_survives_a_crash(aftermaths: dict[Crash, Aftermath], crash: Crash) -> None:
    aftermath = aftermaths[crash]
    keyed = [sequence for sequence in aftermath.delivered if aftermath.rows[sequence]["key"]]
    first_times = list(dict.fromkeys(keyed))
    assert first_times == sorted(first_times)


async def _all_are_resolved(trial: Trial, rows: int) -> None:
    """In the database, and then by what the relay says, which comes a moment later."""
    await trial.until_rows("published_at IS NOT NULL OR dead_at IS NOT NULL", rows, 25.0)
    await until(lambda: bool(trial.journal.events("Dead")), 5.0, "a death")


@pytest.mark.asyncio(loop_scope="function")
async def test_a_message_that_kills_the_relay_is_dead_in_the_end_and_the_others_arrive(trial: Trial) -> None:
    healthy = await trial.enqueue(3)
    [poison] = await trial.enqueue(1, "poison")
    healthy += await trial.enqueue(3)
    attempts = 2
    crashes = 0
    while await trial.count("published_at IS NOT NULL OR dead_at IS NOT NULL") < 7:
        assert crashes <= attempts
        async with trial.child(max_attempts=attempts) as child:
            ended = asyncio.create_task(child.ended(25.0))
            resolved = asyncio.create_task(_all_are_resolved(trial, 7))
            await asyncio.wait({ended, resolved}, return_when=asyncio.FIRST_COMPLETED)
            for task in (ended, resolved):
                task.cancel()
            await asyncio.gather(ended, resolved, return_exceptions=True)
            crashes += child.process.returncode == -signal.SIGKILL
    rows = await trial.rows()
    assert crashes == attempts
    assert len(trial.journal.read("dispatch", sequence=poison)) == attempts
    assert rows[poison]["dead_at"] is not None
    assert rows[poison]["attempts"] == attempts
    assert [sequence for sequence in healthy if rows[sequence]["published_at"] is None] == []
    assert set(trial.journal.delivered()) == set(healthy)
    assert len(trial.journal.events("Dead")) == 1


@pytest.mark.asyncio(loop_scope="function")
async def test_a_claim_whose_sender_died_is_leased_until_its_time_is_over(trial: Trial) -> None:
    await trial.enqueue(3)
    async with trial.gate(closed=True) as gate, trial.child() as child:
        await gate.until_waiting()
        child.send(signal.SIGKILL)
        await child.ended()
        await gate.open()
    async with trial.running():
        await trial.until_published(3, 8.0)
    assert sorted(trial.journal.delivered()) == [1, 2, 3]
    assert all(row["attempts"] <= 2 for row in (await trial.rows()).values())


@pytest.mark.asyncio(loop_scope="function")
@pytest.mark.parametrize("point", ["campaign.before", "campaign.during", "campaign.after"])
async def test_a_dying_stand_by_disturbs_nobody(trial: Trial, point: str) -> None:
    async with trial.running():
        await trial.enqueue(3)
        await trial.until_published(3)
        term = await trial.term()
        async with trial.child(point, nth=2) as stand_by:
            assert await stand_by.ended() == -signal.SIGKILL
        await trial.enqueue(3)
        await trial.until_published(6)
    assert await trial.term() == term
    assert sorted(trial.journal.delivered()) == [1, 2, 3, 4, 5, 6]
    assert not trial.journal.events("LeaderLost", reason="another relay began a newer term")

"""The database's clock goes back: what was stamped before is late, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.faults.servers import ClockedPostgres
from tests.integration.relay.bench import Bench, prepared
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
HOUR = 3600.0


async def test_a_clock_that_goes_back_delays_and_loses_nothing(clocked_postgres: ClockedPostgres) -> None:
    with clocked_postgres.fresh_database("clock") as database:
        async with prepared(database) as bench, bench.relay(ignore):
            before = await bench.connection.fetchval("SELECT clock_timestamp()")
            await bench.enqueue("early", delay=timedelta(seconds=2))
            clocked_postgres.clock.move(-HOUR)
            after = await bench.connection.fetchval("SELECT clock_timestamp()")
            assert (before - after).total_seconds() > HOUR / 2, "the clock did not move"

            await bench.enqueue("late", "later")
            await until(lambda: _published(bench, "late", "later"))
            assert (await bench.states())["pending"] == 1
            assert await _due_in(bench) <= HOUR + 2, "it waits for longer than the clock went back"

            clocked_postgres.clock.move(HOUR)
            assert await bench.settled() == {"published": 3}
            assert {row["attempts"] for row in await bench.rows()} == {1}


async def _published(bench: Bench, *contents: str) -> bool:
    published = {row["content"] for row in await bench.rows() if row["state"] == "published"}
    return {f'"{content}"' for content in contents} <= published


async def _due_in(bench: Bench) -> float:
    """Seconds until the message that waits is due."""
    seconds: float = await bench.connection.fetchval(
        "SELECT extract(epoch FROM max(available_at) - clock_timestamp())::float8 FROM shop.orders_outbox"
    )
    return seconds

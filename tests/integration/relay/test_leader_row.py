"""The leader's row, or its whole table, is gone: nobody can lead, and every relay says so until it is back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from outbox_core.errors import SchemaMismatch
from outbox_core.observer import LeaderGained, LeaderLost, Reconnecting
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.waiting import until
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio

AGILE: dict[str, Any] = {"takeover": 1.0, "database_timeout": 1.0}
MEND = 'INSERT INTO "shop"."outbox_leader" (table_name) VALUES (\'orders_outbox\') ON CONFLICT DO NOTHING;'
NO_ROW = (
    f"{TABLE}: it has no row in shop.outbox_leader, without which no relay can lead it; put it back: {MEND}"
    f" (`outbox schema verify --table {TABLE}` says the same)"
)
NO_TABLE = (
    f"{TABLE}: there is no table shop.outbox_leader, which is kept beside it and has who leads its relays;"
    f" `outbox schema verify --table {TABLE}` prints the statements that make it again"
)


@pytest.fixture(params=["direct", "pooled"])
def led(request: pytest.FixtureRequest, bench: Bench, database: Database) -> Bench:
    """A bench whose relays connect to the server, or to a transaction pooler before it."""
    if request.param == "pooled":
        pgbouncer: PgBouncer = request.getfixturevalue("pgbouncer")
        bench.dsn = pgbouncer.dsn(database.name)
    return bench


@pytest.mark.parametrize("gone", ["row", "table"])
async def test_a_relay_does_not_start_and_says_what_mends_it(bench: Bench, gone: str) -> None:
    await bench.enqueue(1)
    await bench.connection.execute(
        "DELETE FROM shop.outbox_leader" if gone == "row" else "DROP TABLE shop.outbox_leader"
    )
    relay = bench.relay(ignore)
    forms: tuple[Callable[[], Awaitable[object]], ...] = (
        relay.start, relay.drain, relay.run_once, lambda: relay.run(signals=False),
    )  # fmt: skip
    text = ""
    for form in forms:
        with pytest.raises(SchemaMismatch) as raised:
            await form()
        text = str(raised.value)
        assert "leader orders_outbox: expected a row for orders_outbox in outbox_leader, found none" in text
        assert MEND in text
        assert ("error: table shop.outbox_leader: expected a table kept beside the outbox" in text) == (
            gone == "table"
        )
        assert relay.state == "stopped"
    for statement in (line for line in text.splitlines() if line.startswith("    ")):
        await bench.connection.execute(statement)
    assert await bench.relay(ignore).drain() == 1
    await bench.nothing_is_left()


async def test_relays_side_by_side_need_the_table_and_no_row(bench: Bench) -> None:
    await bench.enqueue(1)
    await bench.connection.execute("DELETE FROM shop.outbox_leader")
    assert await bench.relay(ignore, single_active=False).drain() == 1
    await bench.connection.execute("DROP TABLE shop.outbox_leader")
    with pytest.raises(
        SchemaMismatch, match=r"table shop\.outbox_leader: expected a table kept beside the outbox"
    ):
        await bench.relay(ignore, single_active=False).start()


async def test_a_row_that_goes_while_a_relay_leads_is_told_and_the_relay_leads_again_once_it_is_back(
    led: Bench,
) -> None:
    async with led.relay(ignore, **AGILE) as relay:
        await led.enqueue(1)
        await led.settled()
        await led.connection.execute("DELETE FROM shop.outbox_leader")
        await led.enqueue(2)
        await until(lambda: len(led.heard.of(Reconnecting)) > 1)
        assert [event.reason for event in led.heard.of(LeaderLost)] == [NO_ROW]
        assert {event.error for event in led.heard.of(Reconnecting)} == {NO_ROW}
        health = relay.health()
        assert not health.ready
        assert any(NO_ROW in reason for reason in health.reasons)
        assert await led.states() == {"published": 1, "pending": 1}
        assert await led.locks() == 0
        await led.connection.execute(MEND)
        assert await led.settled() == {"published": 2}
        await until(lambda: relay.health().ready)
    assert len(led.heard.of(LeaderGained)) == 2


async def test_a_leader_table_that_goes_while_a_relay_leads_is_named(led: Bench) -> None:
    async with led.relay(ignore, **AGILE):
        await until(lambda: bool(led.heard.of(LeaderGained)))
        await led.connection.execute("ALTER TABLE shop.outbox_leader RENAME TO kept")
        await led.enqueue(1)
        await until(lambda: bool(led.heard.of(LeaderLost)))
        told = len(led.heard.of(Reconnecting))
        await until(lambda: len(led.heard.of(Reconnecting)) > told)
        assert [event.reason for event in led.heard.of(LeaderLost)] == [NO_TABLE]
        assert {event.error for event in led.heard.of(Reconnecting)} == {NO_TABLE}
        await led.connection.execute("ALTER TABLE shop.kept RENAME TO outbox_leader")
        assert await led.settled() == {"published": 1}


async def test_a_role_that_may_no_longer_lead_says_so(bench: Bench, unique_name: str) -> None:
    run = bench.connection.execute
    await run(f"CREATE ROLE {unique_name} LOGIN")
    try:
        await run(f"GRANT USAGE ON SCHEMA shop TO {unique_name}")
        await run(f"GRANT SELECT, UPDATE, DELETE ON {TABLE}, shop.outbox_leader TO {unique_name}")
        async with bench.relay(ignore, connect={"user": unique_name}, monitor=None, **AGILE):
            await until(lambda: bool(bench.heard.of(LeaderGained)))
            await run(f"REVOKE UPDATE ON shop.outbox_leader FROM {unique_name}")
            await until(lambda: bool(bench.heard.of(LeaderLost)))
            (lost,) = bench.heard.of(LeaderLost)
            assert lost.reason.startswith(
                f"the database role may not lead {TABLE}; grant it what its part needs:"
            )
    finally:
        await run(f"DROP OWNED BY {unique_name}; DROP ROLE {unique_name}")

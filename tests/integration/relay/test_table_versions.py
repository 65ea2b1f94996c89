"""Tables that are not what the relay knows: it does not start, says what mends that, and leaves nothing behind."""

from __future__ import annotations

import pytest

from outbox_core.errors import (
    SchemaMismatch,
    SchemaTooNew,
    SchemaTooOld,
    StorageTimeout,
    StorageUnavailable,
)
from outbox_core.relay import Relay
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.settings import QUICK_POSTGRES

pytestmark = pytest.mark.asyncio


async def test_a_table_of_an_older_version_says_which_command_upgrades_it(bench: Bench) -> None:
    await bench.connection.execute("UPDATE shop.outbox_schema_version SET version = 1")
    with pytest.raises(SchemaTooOld) as raised:
        await bench.relay(ignore).start()
    assert "schema version 1 is older than version" in str(raised.value)
    assert f"`await outbox_core.schema.upgrade(connection, {TABLE!r})`" in str(raised.value)
    await bench.nothing_is_left()


async def test_a_table_of_a_version_too_new_says_what_to_upgrade(bench: Bench) -> None:
    await bench.connection.execute("UPDATE shop.outbox_schema_version SET version = 99")
    with pytest.raises(
        SchemaTooNew, match=r"schema version 99 is newer than version .*; upgrade outbox-core$"
    ):
        await bench.relay(ignore).start()
    await bench.nothing_is_left()


async def test_a_version_that_somebody_keeps_locked_is_a_timeout_of_ours_and_not_an_error_of_the_driver(
    bench: Bench,
) -> None:
    """Which of the two errors it is depends on which of two bounds of the same length the server keeps first."""
    relay = bench.relay(ignore, database_timeout=0.5)
    async with bench.connection.transaction():
        await bench.connection.execute("LOCK TABLE shop.outbox_schema_version IN ACCESS EXCLUSIVE MODE")
        with pytest.raises((StorageTimeout, StorageUnavailable)):
            await relay.start()
    assert relay.state == "stopped"
    await bench.nothing_is_left()


async def test_a_table_that_is_no_outbox_is_not_called_an_old_one(bench: Bench) -> None:
    await bench.connection.execute("CREATE TABLE shop.orders (id int PRIMARY KEY)")
    with pytest.raises(SchemaMismatch) as raised:
        await Relay(bench.dsn, table="shop.orders", dispatcher=ignore, **QUICK_POSTGRES).start()
    assert str(raised.value) == "shop.orders: it exists and is not an outbox table; choose another name"
    await bench.nothing_is_left()

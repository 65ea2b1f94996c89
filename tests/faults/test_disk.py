"""The database's disk is full: a transaction fails as a whole, and deliveries go on when there is room again."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import asyncpg
import pytest

from outbox_core.observer import Claimed, Reconnecting
from tests.integration.relay.bench import TABLE, Bench, prepared
from tests.kit.gates import ignore
from tests.kit.waiting import until
from tests.services.account import unprivileged
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024
LEFT = 2 * MIB
"""Bytes that stay free when the disk is filled."""
CHARACTERS = 100_000
BYTES, MESSAGES = 700, 20
"""Of each message in hexadecimal digits, so that a page has few; and of each transaction."""
DISK_FULL = "53100"


async def test_a_full_disk_fails_whole_transactions_and_ends(
    private_postgres: PostgresServer, small_disk: Path
) -> None:
    with private_postgres.fresh_database("disk") as database:
        async with prepared(database) as bench:
            await _move(bench, small_disk)
            async with bench.relay(ignore):
                await bench.enqueue("first")
                filler = _fill(small_disk)
                committed, refused = 1, 0
                for _ in range(100):
                    try:
                        await bench.enqueue(*(secrets.token_hex(CHARACTERS // 2) for _ in range(3)))
                        committed += 3
                    except asyncpg.DiskFullError:
                        refused += 1
                        break
                assert refused, "the disk never was full"
                assert len(await bench.rows()) == committed, "a failed transaction left something"

                filler.unlink()
                await bench.enqueue("last")
                assert await bench.settled() == {"published": committed + 1}
            await _remove(bench)


async def test_a_relay_that_cannot_write_waits_and_burns_no_attempt(
    private_postgres: PostgresServer, small_disk: Path
) -> None:
    with private_postgres.fresh_database("disk") as database:
        async with prepared(database) as bench:
            await _move(bench, small_disk)
            # Without the room that pages keep for it, a lease needs a page of its own.
            await bench.connection.execute(f"ALTER TABLE {TABLE} SET (fillfactor = 100)")
            filler = _fill(small_disk)
            committed = await _enqueue_until_full(bench)
            async with bench.relay(ignore):
                await until(lambda: any(DISK_FULL in said.error for said in bench.heard.of(Reconnecting)))
                assert not bench.heard.of(Claimed)
                assert await bench.states() == {"pending": committed}

                filler.unlink()
                assert await bench.settled() == {"published": committed}
            assert {row["attempts"] for row in await bench.rows()} == {1}
            await _remove(bench)


async def _enqueue_until_full(bench: Bench) -> int:
    """Fill what is left of the disk with messages; how many were committed."""
    for committed in range(0, 20_000, MESSAGES):
        try:
            await bench.enqueue(*(secrets.token_hex(BYTES) for _ in range(MESSAGES)))
        except asyncpg.DiskFullError:
            return committed
    raise AssertionError("the disk never was full")


async def _remove(bench: Bench) -> None:
    await bench.connection.execute(f"DROP TABLE {TABLE}")
    await bench.connection.execute("DROP TABLESPACE small")


async def _move(bench: Bench, disk: Path) -> None:
    """Put the table, its indexes and what is stored beside it on the small disk."""
    folder = disk / "space"
    folder.mkdir()
    if account := unprivileged():
        os.chown(folder, account.user, account.group)
    await bench.connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
    await bench.connection.execute(f"ALTER TABLE {TABLE} SET TABLESPACE small")
    for (index,) in await bench.connection.fetch(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = $1::text::regclass", TABLE
    ):
        await bench.connection.execute(f"ALTER INDEX {index} SET TABLESPACE small")


def _fill(disk: Path) -> Path:
    """A file that takes up all but a little."""
    filler = disk / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        space = os.statvfs(disk)
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - LEFT)
    return filler

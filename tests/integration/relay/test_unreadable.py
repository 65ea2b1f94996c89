"""Rows that every claim comes upon and cannot read, or tell the place of: the others arrive all the same."""

from __future__ import annotations

import os

import pytest

from outbox_core.message import Message
from outbox_core.observer import Dead, Failed, Reconnecting
from tests.integration.relay.bench import TABLE, TOPIC, Bench
from tests.kit.gates import ignore
from tests.kit.tuning import begin_claims_with_span, tune
from tests.kit.waiting import until
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]
_BEYOND_ALL_TEXT = f"""
    INSERT INTO {TABLE} (tenant_id, topic, event_id, digest, payload)
    SELECT
        '00000000-0000-0000-0000-000000000000', '{TOPIC}', gen_random_uuid(), decode(repeat('00', 32), 'hex'),
        (SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 8500))
"""  # noqa: S608
"""Some kilobytes as they are stored, and more than the server's gigabyte as text."""


async def test_a_row_that_cannot_be_written_out_is_dead_and_the_others_arrive(bench: Bench) -> None:
    await bench.enqueue(1, 2)
    await bench.connection.execute(_BEYOND_ALL_TEXT)
    await bench.enqueue(*range(3, 9))
    async with bench.relay(ignore, database_timeout=20.0, takeover=20.0, lock_ttl=60.0):
        assert await bench.settled(90.0) == {"published": 8, "dead": 1}
    (dead,) = [row for row in await bench.rows("NULL") if row["state"] == "dead"]
    assert dead["last_error"].startswith("STORAGE.UNREADABLE ")
    assert {row["attempts"] for row in await bench.rows("NULL")} == {1}
    assert len(bench.heard.of(Dead)) == 1
    assert any("ProgramLimitExceededError" in event.error for event in bench.heard.of(Reconnecting))


def _with_much(column: str) -> Message:
    """So much in a column that it is kept outside of the row, and in more than a few pieces."""
    noise = os.urandom(20_000)
    if column == "body":
        return Message(TOPIC, body=noise, content_type="application/avro")
    if column == "headers":
        return Message(TOPIC, 1, headers={f"h{number}": os.urandom(200).hex() for number in range(15)})
    return Message(TOPIC, noise.hex())


async def _lose_what_is_kept_outside(bench: Bench) -> None:
    """Of every row, as a disk would that lost the blocks: whoever reads it gets an error."""
    connection = bench.connection
    oid = await connection.fetchval(f"SELECT reltoastrelid FROM pg_class WHERE oid = '{TABLE}'::regclass")  # noqa: S608
    name = await connection.fetchval("SELECT $1::oid::regclass::text", oid)
    kind = "UPDATE pg_class SET relkind = $2 WHERE oid = $1"
    await connection.execute(kind, oid, b"r")
    await connection.execute(f"DELETE FROM {name}")  # noqa: S608
    await connection.execute(kind, oid, b"t")
    await connection.execute(f"VACUUM {name}")  # until then what was deleted is still read


@pytest.mark.parametrize("column", ["payload", "body", "headers"])
async def test_a_row_that_is_damaged_where_it_is_stored_is_dead_and_the_others_arrive(
    bench: Bench, column: str
) -> None:
    await bench.enqueue(1, 2)
    await bench.connection.execute(f"ALTER TABLE {TABLE} ALTER {column} SET STORAGE EXTERNAL")
    async with bench.connection.transaction():
        await bench.outbox.enqueue(bench.connection, _with_much(column))
    await _lose_what_is_kept_outside(bench)
    await bench.enqueue(3, 4, 5)
    async with bench.relay(ignore):
        assert await bench.settled() == {"published": 5, "dead": 1}
        await bench.enqueue(6, 7)
        assert await bench.settled() == {"published": 7, "dead": 1}
    rows = await bench.rows("NULL")
    assert [row["state"] for row in rows].index("dead") == 2
    assert rows[2]["last_error"].startswith("STORAGE.UNREADABLE ")
    assert {row["attempts"] for row in rows} == {1}
    assert len(bench.heard.of(Dead)) == 1


async def test_a_row_that_is_too_large_to_be_sent_in_time_is_put_off_and_the_others_arrive(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads it quickly enough: it is the way to the relay that takes long."""
    tune(monkeypatch, max_rescan_seconds=0.3)
    await bench.enqueue(1, 2)
    async with bench.connection.transaction():
        message = Message(TOPIC, body=os.urandom(500_000), content_type="application/avro")
        await bench.outbox.enqueue(bench.connection, message)
    await bench.enqueue(*range(3, 13))
    # Claims go on to what is new: only sweeps come upon it.
    await bench.connection.execute(f"UPDATE {TABLE} SET available_at = available_at - interval '1 hour'")  # noqa: S608
    direct = bench.dsn
    async with FaultProxy.to_postgres(direct) as proxy:
        proxy.throttle(500_000, "responses")
        bench.dsn = proxy.dsn(direct)
        settings = {"database_timeout": 0.5, "takeover": 4.0, "batch_size": 10, "backoff_cap": 600.0}
        async with bench.relay(ignore, **settings):
            await until(lambda: bool(bench.heard.of(Failed)))
            await until(lambda: _published(bench, 12))
    (failed, *_) = bench.heard.of(Failed)
    assert failed.charged
    assert not bench.heard.of(Dead)
    (large,) = [row for row in await bench.rows("NULL") if row["last_error"] is not None]
    assert large["attempts"] >= 1


async def _published(bench: Bench, count: int) -> bool:
    return (await bench.states()).get("published") == count


@pytest.mark.parametrize("time", ["-infinity", "0044-03-15 BC"])
async def test_times_beyond_what_can_be_told_do_not_stop_claims_that_look_less_far(
    bench: Bench, time: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_claims_with_span(monkeypatch, 5)
    await bench.enqueue(*range(60))
    await bench.connection.execute(f"UPDATE {TABLE} SET available_at = '{time}'")  # noqa: S608
    async with bench.relay(ignore):
        assert await bench.settled() == {"published": 60}

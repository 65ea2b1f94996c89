"""Outcomes that the database does not come to the end of: fewer are written at a time, and one waits by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest

from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Reconnecting
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import Gate, ignore
from tests.kit.tuning import tune
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio

_SLOWED = f"""
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(%s);
    RETURN NEW;
END $$;
CREATE TRIGGER slow BEFORE UPDATE ON {TABLE} FOR EACH ROW
    WHEN (NEW.published_at IS NOT NULL%s) EXECUTE FUNCTION slow();
"""
_TOLD_ELSEWHERE = f"""
CREATE TABLE orders (id int PRIMARY KEY, state text);
INSERT INTO orders VALUES (1, 'new'), (2, 'new');
CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE orders SET state = 'told' WHERE id = (NEW.payload #>> '{{}}')::int;
    RETURN NEW;
END $$;
CREATE TRIGGER told BEFORE UPDATE ON {TABLE} FOR EACH ROW
    WHEN (NEW.published_at IS NOT NULL) EXECUTE FUNCTION told();
"""  # noqa: S608
HASTY: dict[str, Any] = {"database_timeout": 1.0, "takeover": 2.0}


async def become(bench: Bench, seconds: float, published: int) -> None:
    async def are() -> bool:
        return (await bench.states()).get("published", 0) == published

    await until(are, seconds)


async def test_outcomes_that_take_too_long_together_are_recorded_in_parts(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """500 of them fit in the time that a statement has, and a relay has thousands in hand."""
    await bench.connection.execute(_SLOWED % (0.002, ""))
    await bench.enqueue(*range(2_000))
    calls = Counter[bytes]()

    async def dispatch(message: DispatchedMessage) -> None:
        calls[message.payload] += 1

    async with bench.relay(dispatch, **HASTY, lock_ttl=60.0):
        await become(bench, 25.0, 2_000)
    assert len(calls) == 2_000
    assert set(calls.values()) == {1}
    assert "outcomes were not recorded in" in caplog.text


async def test_one_that_takes_too_long_keeps_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, deferred_retry_seconds=5.0)
    await bench.connection.execute(_SLOWED % (30, """ AND NEW.payload = '"slow"'::jsonb"""))
    await bench.enqueue(1, "slow", 3)
    async with bench.relay(ignore, **HASTY, lock_ttl=60.0) as relay:
        await become(bench, 8.0, 2)
        await until(lambda: "is not recorded in time" in caplog.text, 8.0)
        for number in range(5):
            await bench.enqueue(number)
            await become(bench, 2.0, 3 + number)
        assert relay.state == "running"
        await bench.connection.execute(f"DROP TRIGGER slow ON {TABLE}")
        await become(bench, 15.0, 8)
    assert {row["attempts"] for row in await bench.rows()} == {1}


async def test_one_that_waits_for_a_lock_elsewhere_keeps_no_other(bench: Bench) -> None:
    """A trigger of the application's writes a row that somebody keeps locked."""
    await bench.connection.execute(_TOLD_ELSEWHERE)
    other = await asyncpg.connect(bench.writers)
    try:
        async with other.transaction():
            await other.execute("UPDATE orders SET state = 'edited' WHERE id = 1")
            await bench.enqueue(1, 2)
            async with bench.relay(ignore, lock_ttl=60.0):
                await become(bench, 6.0, 1)
                await bench.enqueue(*range(10, 20))
                await become(bench, 6.0, 11)
    finally:
        await other.close()


async def test_a_stop_does_not_wait_for_one_that_takes_too_long(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.connection.execute(_SLOWED % (30, ""))
    await bench.enqueue("slow")
    relay = bench.relay(ignore, database_timeout=2.0, takeover=4.0, lock_ttl=60.0)
    await relay.start()
    await until(lambda: "is not recorded in time" in caplog.text, 12.0)
    async with asyncio.timeout(1.5):  # a try of it takes 2 s
        await relay.stop(5.0)
    assert await bench.states() == {"in_flight": 1}


async def test_a_table_that_is_locked_for_a_while_makes_no_outcome_a_slow_one(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """As the building of an index does it, which leaves the locks of rows alone."""
    gate = Gate()
    await bench.enqueue(*range(8))
    other = await asyncpg.connect(bench.writers)
    try:
        async with bench.relay(gate, **HASTY, lock_ttl=60.0, dispatch_timeout=5.0):
            await until(lambda: gate.inside == 8)
            async with other.transaction():
                await other.execute(f"LOCK TABLE {TABLE} IN SHARE MODE")
                gate.opened.set()
                await until(lambda: len(bench.heard.of(Reconnecting)) >= 3)
            await become(bench, 4.0, 8)
    finally:
        await other.close()
    assert "not recorded in" not in caplog.text


async def test_those_that_were_slow_are_recorded_soon_after_the_first_of_them(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, deferred_retry_seconds=5.0)
    await bench.connection.execute(_SLOWED % (30, """ AND NEW.payload = '"slow"'::jsonb"""))
    await bench.enqueue("slow", "slow", "slow", "slow")
    async with bench.relay(ignore, **HASTY, lock_ttl=60.0):
        await until(lambda: caplog.text.count("is not recorded in time") == 4, 25.0)
        await bench.connection.execute(f"DROP TRIGGER slow ON {TABLE}")
        await become(bench, 7.0, 4)
    assert {row["attempts"] for row in await bench.rows()} == {1}

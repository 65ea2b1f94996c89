"""What the database refuses, or a destination that is away, keeps nobody else and nothing for ever."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from outbox_core.errors import BrokerUnavailable
from outbox_core.meta import DispatchedMessage
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


REFUSE_ONE = f"""
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.published_at IS NOT NULL AND NEW.payload = '"refused"'::jsonb THEN
        RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION refuse();
"""


async def test_an_outcome_the_database_refuses_keeps_no_other_from_being_recorded(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.connection.execute(REFUSE_ONE)
    await bench.enqueue("first")
    await bench.enqueue("refused")
    await bench.enqueue("third")
    async with bench.relay(ignore):

        async def others_are_through() -> bool:
            return [row["state"] for row in await bench.rows()].count("published") == 2

        await until(others_are_through, 15)
    assert "cannot be recorded" in caplog.text
    assert "it will be dispatched again" in caplog.text


class Away:
    """Every message finds the broker away, and it takes its time to say so when asked."""

    async def dispatch(self, message: DispatchedMessage) -> None:
        if message.meta.key is None:
            await asyncio.sleep(0.3)
        raise BrokerUnavailable("away")

    async def probe(self) -> None:
        await asyncio.sleep(0.6)
        raise BrokerUnavailable("away")


async def test_drain_lets_the_event_loop_go_on_while_the_only_destination_is_away(bench: Bench) -> None:
    await bench.enqueue("keyed", key="k")
    await bench.enqueue("plain")
    began = time.monotonic()
    with suppress(TimeoutError):
        await bench.relay(Away(), backoff_base=0.05, backoff_cap=0.1).drain(timeout=3)
    assert time.monotonic() - began < 8
    assert {row["state"] for row in await bench.rows()} == {"pending"}

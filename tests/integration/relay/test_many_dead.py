"""A key that has had trouble for long has many dead letters, kept by default: claims must not pay for each of them."""

from __future__ import annotations

import statistics

import pytest

from outbox_core import DispatchedMessage
from outbox_core.observer import Claimed, Failed, Published
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

DEAD = 100_000
MESSAGES = 30
MEDIAN_SECONDS = 0.015
"""Of a claim. One that looks at every dead letter of the key takes several times as long."""
_DEAD = f"""
    INSERT INTO {TABLE} (tenant_id, topic, key, event_id, digest, payload, attempts, dead_at, replays)
    SELECT
        '00000000-0000-0000-0000-000000000000', 'a.b.v1', 'troubled', gen_random_uuid(),
        decode(repeat('00', 32), 'hex'), '1', 25, now(), $2
    FROM generate_series(1, $1)
"""  # noqa: S608


async def bury(bench: Bench, replays: int = 0) -> None:
    await bench.connection.execute(_DEAD, DEAD, replays)
    await bench.connection.execute(f"VACUUM ANALYZE {TABLE}")


def published(bench: Bench) -> int:
    return sum(len(event.messages) for event in bench.heard.of(Published))


def median_of_claims(bench: Bench) -> float:
    claims = [event.seconds for event in bench.heard.of(Claimed)]
    assert len(claims) > MESSAGES / 2
    return statistics.median(claims)


async def test_those_that_hold_nobody_up(bench: Bench) -> None:
    await bury(bench)
    async with bench.relay(ignore):
        for number in range(MESSAGES):
            await bench.enqueue(number, key="troubled")
            await until(lambda n=number: published(bench) > n)
    assert median_of_claims(bench) < MEDIAN_SECONDS


async def test_those_that_died_again_after_a_replay(bench: Bench) -> None:
    await bury(bench, replays=1)
    async with bench.relay(ignore, on_dead="block"):
        for number in range(MESSAGES):
            await bench.enqueue(number, key="troubled")
            await until(lambda n=number: published(bench) > n)
    assert median_of_claims(bench) < MEDIAN_SECONDS


async def test_a_key_that_is_followed(bench: Bench) -> None:
    await bury(bench)

    async def second_time_lucky(message: DispatchedMessage) -> None:
        if message.meta.attempts < 2:
            raise RuntimeError

    async with bench.relay(second_time_lucky, backoff_base=0.001, backoff_cap=0.001, backoff_jitter=0):
        for number in range(MESSAGES):
            await bench.enqueue(number, key="troubled")
            await until(lambda n=number: published(bench) > n)
    assert len(bench.heard.of(Failed)) == MESSAGES
    assert median_of_claims(bench) < MEDIAN_SECONDS

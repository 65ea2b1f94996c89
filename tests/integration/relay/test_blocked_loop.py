"""A dispatcher that blocks the event loop costs the leadership, loses nothing, and is told with where to look."""

from __future__ import annotations

import logging
import re
import time

import pytest

from outbox_core.meta import DispatchedMessage
from outbox_core.observer import LeaderGained, LeaderLost, Published
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
BAD = b'"bad"'


def standstills(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "the event loop stood still" in record.getMessage()
    ]


async def test_blocking_the_event_loop_costs_the_leadership_and_nothing_else(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == BAD:
            time.sleep(2.5)  # noqa: ASYNC251 - that is the mistake

    await bench.enqueue("good", "bad", *range(20))
    async with bench.relay(dispatch, takeover=1.0, dispatch_timeout=0.5, database_timeout=1.0, lock_ttl=5.0):
        assert await bench.settled() == {"published": 22}
        await until(lambda: bool(bench.heard.of(LeaderLost)))
        await until(lambda: len(bench.heard.of(LeaderGained)) > len(bench.heard.of(LeaderLost)))
        await bench.enqueue("after")
        assert await bench.settled() == {"published": 23}
        assert standstills(caplog)
    assert all(row["attempts"] <= 2 for row in await bench.rows())
    assert bench.heard.of(Published)


@pytest.mark.parametrize("single_active", [True, False])
async def test_a_blocked_event_loop_is_told_with_where_to_look(
    bench: Bench, caplog: pytest.LogCaptureFixture, single_active: bool
) -> None:
    async def dispatch(_message: DispatchedMessage) -> None:
        time.sleep(2.0)  # noqa: ASYNC251 - that is the mistake

    await bench.enqueue(1)
    async with bench.relay(dispatch, single_active=single_active, dispatch_timeout=4.0, lock_ttl=20.0):
        await until(lambda: bool(standstills(caplog)))
    (text,) = standstills(caplog)
    told = re.fullmatch(
        rf"{TABLE}: the event loop stood still for ([0-9.]+) s: look for a blocking call in the dispatcher or"
        " beside it, unless the process was stopped or had no processor",
        text,
    )
    assert told is not None
    assert 1.4 < float(told[1]) < 10.0

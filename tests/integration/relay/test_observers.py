"""What a relay tells, to whom, and that nobody who listens can break it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from outbox_core import observer as events
from outbox_core.errors import BrokerUnavailable, PermanentError, RetryAfter
from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.observer import Event
from outbox_core.observers.logging import LoggingObserver
from outbox_core.table import TableName
from tests.integration.relay.bench import TABLE, Bench

pytestmark = pytest.mark.asyncio


class Varied:
    """Every way a dispatch can end, by payload."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        content = message.json()
        if content["does"] == "dies":
            raise PermanentError(f"refused {content['secret']}")
        if content["does"] == "fails" and message.meta.attempts == 1:
            raise ValueError(f"bad input: {message.payload.decode()}")
        if content["does"] == "waits" and message.meta.attempts == 1:
            raise RetryAfter(timedelta(0), f"later, {message.meta.headers['x-auth']}")
        if content["does"] == "hides" and not hasattr(self, "away"):
            self.away = True
            raise BrokerUnavailable("amqp://app:CANARY-PASSWORD@mq refused")


async def enqueue_varied(bench: Bench) -> None:
    for does in ("arrives", "dies", "fails", "hides"):
        await bench.enqueue(
            {"does": does, "secret": "CANARY-PAYLOAD-" + does}, headers={"x-auth": "CANARY-HEADER"}, key=does
        )


async def test_a_lease_that_was_lost_to_a_later_one_of_the_same_relay_is_told(bench: Bench) -> None:
    """A step of the database's clock, say: the row is leased once more while it is dispatched, and both end at once."""
    await bench.enqueue(1)
    twice, dispatches = asyncio.Event(), 0

    async def dispatch(_: DispatchedMessage) -> None:
        nonlocal dispatches
        dispatches += 1
        if dispatches == 1:
            await bench.connection.execute(
                "UPDATE shop.orders_outbox SET locked_at = locked_at - interval '1 hour'"
            )
        else:
            twice.set()
        await twice.wait()

    async with bench.relay(dispatch, dispatch_timeout=5.0, lock_ttl=20.0):
        async with asyncio.timeout(15):
            await twice.wait()
        await bench.settled()
    assert dispatches == 2
    assert [len(event.messages) for event in bench.heard.of(events.Published)] == [1]
    (lost,) = bench.heard.of(events.LeaseLost)
    assert (lost.message.attempts, lost.write) == (1, "publish")


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), asyncio.CancelledError(), AssertionError(), GeneratorExit(), Odd()]
)
async def test_observers_cannot_break_the_relay(
    bench: Bench, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise error

    await enqueue_varied(bench)
    async with bench.relay(Varied(), observers=[broken]) as relay:
        assert await bench.settled() == {"published": 3, "dead": 1}
        assert relay.state == "running"
    assert f"the observer {broken.__qualname__} failed on LeaderGained" in caplog.text
    heard = {type(event) for event in bench.heard.events}
    assert {events.Claimed, events.Published, events.Dead, events.Stopped} <= heard


async def test_the_life_of_messages_in_events(bench: Bench) -> None:
    await enqueue_varied(bench)
    async with bench.relay(Varied()):
        await bench.settled()
    heard = bench.heard
    assert all(str(event.table) == TABLE for event in heard.events)
    (gained,) = heard.of(events.LeaderGained)
    (lost,) = heard.of(events.LeaderLost)
    assert (lost.term, lost.reason) == (gained.term, "the relay stopped")
    dispatched = [meta.key for event in heard.of(events.Dispatched) for meta in event.messages]
    published = [meta.key for event in heard.of(events.Published) for meta in event.messages]
    assert sorted(str(key) for key in dispatched) == sorted(str(key) for key in published)
    assert sorted(str(key) for key in published) == ["arrives", "fails", "hides"]
    for event in heard.of(events.Dispatched):
        assert len(event.seconds) == len(event.messages)
        assert all(0 <= seconds < 5 for seconds in event.seconds)
    assert [event.message.key for event in heard.of(events.Dead)] == ["dies"]
    assert {(event.message.key, event.charged) for event in heard.of(events.Failed)} == {
        ("fails", True),
        ("hides", False),
    }
    assert [event.destination for event in heard.of(events.BreakerOpened)] == ["Varied"]
    assert len(heard.of(events.BreakerClosed)) == 1
    assert sum(event.rows for event in heard.of(events.Claimed)) >= 6
    (stopped,) = heard.of(events.Stopped)
    assert stopped.abandoned == 0
    assert heard.events[-1] is stopped


async def test_events_are_frozen_and_have_no_payload() -> None:
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    assert len(kinds) >= 15
    for kind in kinds:
        names = {field.name for field in fields(kind)}
        assert not names & {"payload", "body", "headers"}, kind
        assert kind.__doc__
    ended = events.SessionEnded(TableName.parse(TABLE), pid=1)
    with pytest.raises(FrozenInstanceError):
        ended.pid = 2  # type: ignore[misc]


async def test_the_log_has_every_event_with_its_fields_and_no_secret(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await enqueue_varied(bench)
    async with bench.relay(Varied()):
        await bench.settled()
    records = [record for record in caplog.records if record.name == "outbox_core.relay"]
    texts = [record.getMessage() for record in records]
    assert all(text.startswith(f"{TABLE}: ") for text in texts)
    assert {record.levelno for record in records} == {
        logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR,
    }  # fmt: skip
    (dead,) = [record for record in records if "message is dead" in record.getMessage()]
    assert dead.levelno == logging.ERROR
    extras = {name: value for name, value in vars(dead).items() if name.startswith("outbox_")}
    row = next(row for row in await bench.rows() if row["state"] == "dead")
    assert extras["outbox_table"] == TABLE
    assert extras["outbox_sequence"] == row["sequence"]
    assert extras["outbox_attempts"] == 1
    assert set(extras) == {
        "outbox_table", "outbox_topic", "outbox_event_id", "outbox_tenant_id", "outbox_sequence", "outbox_attempts",
    }  # fmt: skip
    everything = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "CANARY" not in everything
    assert "CANARY" not in "".join(row["last_error"] or "" for row in await bench.rows())
    assert "CANARY" not in repr(bench.heard.events)


async def test_every_event_has_a_line_of_its_own_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    table = TableName.parse(TABLE)
    nil = UUID(int=0)
    meta = Meta(TABLE, nil, "a.b", nil, 1, 1, 0, None, {}, datetime.now(UTC))
    every: list[Event] = [
        events.Claimed(table, 1, 2, 0.1),
        events.Dispatched(table, [meta], [0.1]),
        events.Published(table, [meta]),
        events.Failed(table, meta, "E", 1.0, False, 0.1),
        events.Dead(table, meta, "E"),
        events.Released(table, 1, "why"),
        events.LeaseLost(table, meta, "publish"),
        events.LeaderGained(table, 1),
        events.LeaderLost(table, 1, "why"),
        events.BreakerOpened(table, "kafka", "E", 1.0),
        events.BreakerClosed(table, "kafka", 1.0),
        events.Reconnecting(table, "E", 1.0),
        events.PoolerDetected(table),
        events.SessionEnded(table, 7),
        events.Enqueued(table, "a.b", nil, nil, 1, 2, b"digest"),
        events.Stopped(table, datetime.now(UTC), 1),
    ]
    caplog.set_level(logging.DEBUG)
    observe = LoggingObserver(logging.getLogger("some.application"))
    for event in every:
        observe(event)
    assert [record.name for record in caplog.records] == ["some.application"] * len(every)
    assert len({record.getMessage() for record in caplog.records}) == len(every)

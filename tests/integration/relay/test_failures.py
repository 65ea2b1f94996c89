"""What a failed dispatch leaves on its row: when it is tried again or given up, and what is kept of the error."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from outbox_core.errors import PermanentError, RetryAfter
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Dead, Failed
from outbox_core.relay.summaries import summary_of
from outbox_core.runtime.backoff import Backoff
from tests.integration.relay.bench import TABLE, TOPIC, Bench
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


async def waits(bench: Bench) -> float:
    """Seconds until the only row is due, by the database's clock."""
    seconds: float = await bench.connection.fetchval(
        f"SELECT extract(epoch FROM available_at - clock_timestamp())::float8 FROM {TABLE}"  # noqa: S608
    )
    return seconds


async def test_a_failure_is_put_off_by_the_backoff_of_its_attempt(bench: Bench) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        raise ValueError("no")

    await bench.enqueue(1)
    draws = iter([0.25, 0.75])
    relay = bench.relay(dispatch, backoff_base=100.0, backoff_cap=150.0, backoff_jitter=20.0)
    relay._random = lambda: next(draws)
    for attempts, expected in ((1, 100 + 0.25 * 20), (2, 150 + 0.75 * 20)):
        assert await relay.drain() == 0
        row = await bench.row()
        assert (row["state"], row["attempts"]) == ("pending", attempts)
        assert expected - 10 < await waits(bench) <= expected
        assert bench.heard.of(Failed)[-1].retry_in == expected
        assert bench.heard.of(Failed)[-1].charged
        await bench.connection.execute(f"UPDATE {TABLE} SET available_at = now()")  # noqa: S608


@pytest.mark.parametrize("failures", [0, 1, 310, 2000, 10_000, 10**9])
async def test_the_backoff_stays_in_its_bounds(failures: int) -> None:
    for jitter in (0.0, 1.0):
        delay = Backoff(base=1.0, cap=60.0, jitter=0.2, random=lambda j=jitter: j).delay(failures)  # type: ignore[misc]
        assert 1.0 <= delay <= 60.2
    assert Backoff(1.0, 60.0, 0.0).delay(failures) == min(2.0 ** max(min(failures, 100) - 1, 0), 60.0)


async def test_a_permanent_error_is_dead_at_once(bench: Bench) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        raise PermanentError("the schema is unknown")

    await bench.enqueue(1)
    async with bench.relay(dispatch):
        assert await bench.settled() == {"dead": 1}
    row = await bench.row()
    assert (row["attempts"], row["last_error"]) == (1, "PROVIDER.PERMANENT the schema is unknown")
    assert len(bench.heard.of(Dead)) == 1
    assert not bench.heard.of(Failed)


async def test_dead_at_the_last_attempt_and_counted_once(bench: Bench) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        raise ValueError(f"attempt {message.meta.attempts}")

    await bench.enqueue(1)
    async with bench.relay(dispatch, max_attempts=3):
        assert await bench.settled() == {"dead": 1}
    row = await bench.row()
    assert (row["attempts"], row["last_error"]) == (3, "UNKNOWN.VALUEERROR ValueError: attempt 3")
    assert [event.message.attempts for event in bench.heard.of(Failed)] == [1, 2]
    assert [event.message.attempts for event in bench.heard.of(Dead)] == [3]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (timedelta(seconds=90), 90.0),
        (timedelta(days=400), 24 * 3600.0),
        (timedelta.max, 24 * 3600.0),
        (timedelta(seconds=-5), 0.0),
    ],
)
async def test_retry_after_is_heard_up_to_a_day_and_counts(
    bench: Bench, asked: timedelta, given: float
) -> None:
    done = asyncio.Event()

    async def dispatch(message: DispatchedMessage) -> None:
        if done.is_set():
            raise PermanentError("enough")
        done.set()
        raise RetryAfter(asked, "closed on Sundays")

    await bench.enqueue(1)
    async with bench.relay(dispatch):
        await until(lambda: bool(bench.heard.of(Failed)))
    row = await bench.row()
    assert bench.heard.of(Failed)[0].retry_in == given
    assert bench.heard.of(Failed)[0].charged
    if given:
        assert (row["attempts"], row["last_error"]) == (1, "PROVIDER.RETRY_AFTER closed on Sundays")
        assert given - 20 < await waits(bench) <= given


async def test_retry_after_does_not_outlive_the_last_attempt(bench: Bench) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        raise RetryAfter(timedelta(0))

    await bench.enqueue(1)
    async with bench.relay(dispatch, max_attempts=2):
        assert await bench.settled() == {"dead": 1}


async def leave_behind(bench: Bench, attempts: int, *, leased: bool) -> None:
    """A row as a crashed relay leaves it: so many attempts begun, its lease long over (or given back)."""
    await bench.enqueue(1)
    lease = "now() - interval '1 hour'" if leased else "NULL"
    await bench.connection.execute(
        f"UPDATE {TABLE} SET attempts = $1, locked_at = {lease}, lock_token = $2",  # noqa: S608
        attempts,
        uuid4() if leased else None,
    )


@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize("attempts", [3, 7])
async def test_a_row_whose_last_attempt_has_no_outcome_is_buried(
    bench: Bench, leased: bool, attempts: int
) -> None:
    """Its owner crashed on the last attempt, or `max_attempts` was lowered: nobody dispatches it again."""
    dispatched: list[DispatchedMessage] = []

    async def dispatch(message: DispatchedMessage) -> None:
        dispatched.append(message)

    await leave_behind(bench, attempts, leased=leased)
    async with bench.relay(dispatch, max_attempts=3):
        assert await bench.settled() == {"dead": 1}
    row = await bench.row()
    assert not dispatched
    assert row["attempts"] == attempts
    assert row["last_error"] == (
        "TX.DEADLETTER the lease of its last attempt ended without an outcome (max_attempts=3)"
        if leased
        else f"TX.DEADLETTER it has had {attempts} attempts, each with an outcome,"
        " and no more than max_attempts=3 are allowed now"
    )
    assert len(bench.heard.of(Dead)) == 1


async def test_the_attempt_before_the_last_is_still_made(bench: Bench) -> None:
    await leave_behind(bench, 2, leased=True)
    async with bench.relay(ignore, max_attempts=3):
        assert await bench.settled() == {"published": 1}
    assert (await bench.row())["attempts"] == 3


async def test_a_failure_of_one_message_costs_no_other_one(bench: Bench) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        if json.loads(message.payload) % 2:
            raise ValueError("odd")

    await bench.enqueue(*range(40))
    async with bench.relay(dispatch, max_attempts=2):
        assert await bench.settled() == {"published": 20, "dead": 20}
    assert all((row["state"] == "dead") == int(row["content"]) % 2 for row in await bench.rows())
    assert {row["attempts"] for row in await bench.rows() if row["state"] == "published"} == {1}


@pytest.mark.parametrize(("policy", "published"), [("skip", 3), ("block", 1)])
async def test_a_dead_head_lets_its_key_go_on_or_holds_it(bench: Bench, policy: str, published: int) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == b"1":
            raise PermanentError("never")

    await bench.enqueue(0, 1, 2, 3, key="k")
    relay = bench.relay(dispatch, on_dead=policy)
    assert await relay.drain() == published
    states = [row["state"] for row in await bench.rows()]
    assert states == ["published", "dead", *["published" if policy == "skip" else "pending"] * 2]


# What is kept of an error


def shown(error: BaseException, payload: bytes = b"{}", max_bytes: int = 2048) -> str:
    return summary_of(error, payload, max_bytes)


@pytest.mark.parametrize(
    "text",
    [
        "cannot connect to postgresql://app:CANARY@db:5432/shop",
        "cannot connect to amqps://app:CANARY/with@slash@mq/vhost",
        "amqp://CANARY@mq refused",
        "password=CANARY",
        "PGPASSWORD=CANARY psql",
        "db_password = 'CANARY'",
        '{"password": "CANARY", "user": "app"}',
        "{'client_secret': 'CANARY'}",
        "access_token: CANARY",
        "api-key=CANARY",
        "sasl_plain_password='CANARY'",
        "Authorization: Bearer CANARY",
        "authorization=Basic CANARYCANARY",
        "sent header Bearer CANARYCANARY=",
        "https://x.example/hook?token=CANARY&x=1",
    ],
)
async def test_credentials_are_not_kept(text: str) -> None:
    assert "CANARY" not in shown(ValueError(text))


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"email": "canary@example.org"}, "invalid address canary@example.org in field email"),
        ({"email": "canary@example.org"}, "bad input {'email': 'canary@example.org'}"),
        ({"card": "4111 1111 1111 1111"}, "refused card 4111 1111 1111 1111 today"),
        ({"card": 4111111111111111}, "refused card=4111111111111111"),
        ({"name": "Ünïcödé cänäry"}, "name too long: Ünïcödé cänäry"),
        ("a canary text", 'not an object: "a canary text"'),
    ],
)
async def test_the_payload_is_not_kept(payload: object, text: str) -> None:
    kept = shown(ValueError(text), json.dumps(payload, ensure_ascii=False).encode())
    assert kept.startswith("UNKNOWN.VALUEERROR ValueError: ")
    assert "[payload]" in kept
    for secret in ("canary", "4111", "cänäry"):
        assert secret not in kept


async def test_what_is_not_of_the_payload_is_kept() -> None:
    kept = shown(ValueError("HTTP 500 from orders: try later"), b'{"id": 1, "note": "hello"}')
    assert kept == "UNKNOWN.VALUEERROR ValueError: HTTP 500 from orders: try later"


async def test_a_drivers_text_is_left_out() -> None:
    kept = shown(asyncpg.UniqueViolationError("Key (email)=(canary@example.org) already exists."))
    assert kept == "UNKNOWN.UNIQUEVIOLATIONERROR UniqueViolationError: 23505"


@pytest.mark.parametrize("character", ["x", "é", "€", "😀"])
@pytest.mark.parametrize("extra", range(4))
async def test_the_text_is_cut_to_bytes_between_characters(character: str, extra: int) -> None:
    kept = shown(ValueError("y" * extra + character * 500), max_bytes=100)
    assert 90 < len(kept.encode()) <= 100
    assert kept.endswith(character + "…")
    short = ValueError(character)
    assert shown(short, max_bytes=100) == f"UNKNOWN.VALUEERROR ValueError: {character}"


@pytest.mark.parametrize(
    "text",
    [
        "a" * 2_000_000, "a:" * 500_000, "a://" * 300_000, "token=" * 300_000, "token " * 300_000, "token='" * 300_000,
        " ".join(map(str, range(300_000))),
    ],
    ids=lambda text: text[:7],
)  # fmt: skip
async def test_a_huge_text_does_not_hold_the_event_loop_up(text: str) -> None:
    began = time.process_time()
    assert len(shown(ValueError(text), b'"' + b"z" * 500_000 + b'"').encode()) <= 2048
    assert time.process_time() - began < 0.5


async def test_it_is_kept_as_one_line_that_begins_with_the_code(bench: Bench) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        raise PermanentError("first\nsecond\tthird\0 € " + "€" * 5000)

    await bench.enqueue(1)
    async with bench.relay(dispatch, last_error_max_bytes=256):
        assert await bench.settled() == {"dead": 1}
    kept = (await bench.row())["last_error"]
    assert kept.startswith("PROVIDER.PERMANENT first second third € €€")
    assert len(kept.encode()) <= 256


async def test_topics_are_not_mixed_up(bench: Bench) -> None:
    """A dead letter can be found again: its identity and content are as they were enqueued."""

    async def dispatch(message: DispatchedMessage) -> None:
        raise PermanentError("no")

    (event_id,) = await bench.enqueue({"a": [1, None, "x"]}, headers={"h": "v"}, key="k")
    async with bench.relay(dispatch):
        await bench.settled()
    stored = await bench.outbox.get(bench.connection, event_id, payload=True)
    assert stored is not None
    assert (stored.topic, stored.key, stored.state) == (TOPIC, "k", "dead")
    assert json.loads(stored.payload or b"") == {"a": [1, None, "x"]}
    assert stored.headers == {"h": "v"}

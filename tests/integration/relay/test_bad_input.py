"""Rows edited by hand, tables that are not there or not right, roles without rights, settings that cannot work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from outbox_core import schema
from outbox_core.errors import (
    BrokerUnavailable,
    ConfigError,
    InvalidTableName,
    PermissionDenied,
    SchemaMissing,
)
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


# Rows


async def deliver_around(
    bench: Bench, assignment: str, *, resolves: bool
) -> tuple[dict[str, Any], list[DispatchedMessage]]:
    """Change the middle one of three rows by hand and deliver; what became of it, and all that was dispatched."""
    await bench.enqueue("first", "edited", "last", headers={"h": "v"}, key=None)
    await bench.connection.execute(
        f"UPDATE {TABLE} SET {assignment} WHERE sequence = (SELECT min(sequence) + 1 FROM {TABLE})"  # noqa: S608
    )
    seen: list[DispatchedMessage] = []

    async def dispatch(message: DispatchedMessage) -> None:
        dict(message.meta.headers)
        seen.append(message)

    async with bench.relay(dispatch, max_attempts=3) as relay:

        async def others_are_through() -> bool:
            rows = await bench.rows()
            return rows[0]["state"] == rows[2]["state"] == "published"

        await until(others_are_through, 10)
        await bench.enqueue("after")

        async def after_is_through() -> bool:
            return (await bench.rows())[3]["state"] == "published"

        await until(after_is_through, 10)
        if resolves:
            await bench.settled(4)
        assert relay.state == "running"
    return dict((await bench.rows())[1]), seen


@pytest.mark.parametrize(
    "assignment",
    [
        "headers = '[1, 2]'",
        "headers = '\"text\"'",
        "headers = '7'",
        "headers = 'null'",
        "headers = (repeat('9', 5000))::jsonb",
        "headers = ('{\"a\":' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb",
        "attempts = 2147483647",
        "attempts = 1000",
        "available_at = 'infinity'",
        "available_at = '-infinity'",
        "available_at = '4000-01-01 BC'",
        "created_at = 'infinity'",
        "created_at = '12000-01-01'",
        "created_at = '4000-01-01 BC'",
        "payload = 'null'",
        "payload = ('[' || repeat('9', 5000) || ']')::jsonb",
        "payload = NULL, body = ''",
        "topic = ''",
        "topic = repeat('x', 5000)",
        "key = ''",
        "key = E'\\n', tenant_id = '00000000-0000-0000-0000-000000000000'",
        "traceparent = 'garbage', tracestate = 'garbage'",
        "replays = 2147483647",
        "last_error = repeat('x', 100000)",
        "locked_at = '-infinity', lock_token = gen_random_uuid()",
        "locked_at = 'infinity', lock_token = gen_random_uuid()",
    ],
)
async def test_a_row_edited_by_hand_stops_no_other_one(bench: Bench, assignment: str) -> None:
    never = assignment in (
        "available_at = 'infinity'",
        "locked_at = 'infinity', lock_token = gen_random_uuid()",
    )
    row, seen = await deliver_around(bench, assignment, resolves=not never)
    assert {b'"first"', b'"last"', b'"after"'} <= {message.payload for message in seen}
    assert (row["state"] in {"published", "dead"}) is not never


async def test_rows_that_are_due_since_centuries_come_in_their_order(bench: Bench) -> None:
    await bench.enqueue(*range(300))
    moment = "'0100-01-01Z'::timestamptz + sequence * interval '1 microsecond'"
    await bench.connection.execute(f"UPDATE {TABLE} SET available_at = {moment}")  # noqa: S608
    seen: list[int] = []

    async def dispatch(message: DispatchedMessage) -> None:
        seen.append(message.meta.sequence)

    async with bench.relay(dispatch, batch_size=10, concurrency=1):
        await bench.settled()
    assert len(seen) == 300
    # Within a claim their places are the same; no claim passes over what is before it.
    assert all(abs(at - sequence) < 100 for at, sequence in enumerate(seen, start=min(seen)))


async def test_attempts_set_to_nothing_under_a_lease_do_not_block_the_record(bench: Bench) -> None:
    """The refund of an attempt that is not there must not be refused for ever."""
    calls = 0

    async def dispatch(message: DispatchedMessage) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            connection = await asyncpg.connect(bench.dsn)
            await connection.execute(f"UPDATE {TABLE} SET attempts = 0")  # noqa: S608
            await connection.close()
            raise BrokerUnavailable("away for a moment")

    await bench.enqueue(1)
    async with bench.relay(dispatch, lock_ttl=60.0):
        assert await bench.settled(10) == {"published": 1}


@pytest.mark.parametrize(
    "assignment",
    [
        "attempts = -1",
        "payload = NULL",
        "body = 'x'",
        "locked_at = now()",
        "lock_token = gen_random_uuid()",
        "published_at = now(), dead_at = now()",
        "dead_at = now(), locked_at = now(), lock_token = gen_random_uuid()",
    ],
)
async def test_impossible_states_are_refused_by_the_table(bench: Bench, assignment: str) -> None:
    await bench.enqueue(1)
    with pytest.raises(asyncpg.CheckViolationError):
        await bench.connection.execute(f"UPDATE {TABLE} SET {assignment}")  # noqa: S608


# Tables and roles


async def test_a_table_that_does_not_exist_says_which_command_creates_it(bench: Bench) -> None:
    relay = Relay(bench.dsn, table="shop.absent_outbox", dispatcher=ignore, **QUICK_POSTGRES)
    for form in (relay.start, relay.drain, relay.run_once, lambda: relay.run(signals=False)):
        with pytest.raises(SchemaMissing) as raised:
            await form()
        assert "shop.absent_outbox: there is no such table in this database." in str(raised.value)
        assert "`await outbox_core.schema.create(connection, 'shop.absent_outbox')`" in str(raised.value)
        assert relay.state == "stopped"
    await bench.nothing_is_left()


@asynccontextmanager
async def role(bench: Bench, name: str, *grants: str) -> AsyncIterator[str]:
    """A role that may log in and has these grants alone; the address to connect as it."""
    await bench.connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    try:
        for grant in grants:
            await bench.connection.execute(grant)
        parts = urlsplit(bench.dsn)
        yield parts._replace(netloc=f"{name}:secret@{parts.netloc.rpartition('@')[2]}").geturl()
    finally:
        await bench.connection.execute(f"DROP OWNED BY {name}")
        await bench.connection.execute(f"DROP ROLE {name}")


async def test_a_role_without_rights_says_which_grants_it_needs(bench: Bench, unique_name: str) -> None:
    schema_use = f"GRANT USAGE ON SCHEMA shop TO {unique_name}"
    version = f"GRANT SELECT ON shop.outbox_schema_version TO {unique_name}"
    reading = f"GRANT SELECT ON {TABLE}, shop.outbox_leader TO {unique_name}"
    changing = f"GRANT UPDATE ON {TABLE} TO {unique_name}"
    deleting = f"GRANT DELETE ON {TABLE} TO {unique_name}"
    leading = f"GRANT UPDATE ON shop.outbox_leader TO {unique_name}"
    complete = [schema_use, version, reading, changing, deleting, leading]
    async with role(bench, unique_name) as dsn:
        for missing in [*complete, None]:
            if missing is version:
                continue  # a table whose version may not be read is taken to be current
            await bench.connection.execute(f"DROP OWNED BY {unique_name}")
            for grant in complete:
                if grant != missing:
                    await bench.connection.execute(grant)
            relay = Relay(dsn, table=TABLE, dispatcher=ignore, **QUICK_POSTGRES)
            if missing is None:
                assert await relay.drain() == 0
                continue
            with pytest.raises(PermissionDenied) as raised:  # noqa: PT012 - says which one was missing
                await relay.drain()
                pytest.fail(f"started without: {missing}")
            assert f"{TABLE}; grant it what its part needs" in str(raised.value), missing
            assert f"outbox_core.schema.roles('{TABLE}', relay='ROLE') prints the statements" in str(
                raised.value
            )
            assert "secret" not in str(raised.value)
    await bench.nothing_is_left()


async def test_the_relay_role_is_enough(bench: Bench, unique_name: str) -> None:
    await bench.enqueue(1, 2, key="k")
    async with role(bench, unique_name) as dsn:
        await bench.connection.execute(schema.roles(TABLE, relay=unique_name))
        assert await Relay(dsn, table=TABLE, dispatcher=ignore, **QUICK_POSTGRES).drain() == 2


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be greater than 0, got 0"),
        ({"batch_size": "100"}, "batch_size must be a whole number, got '100'"),
        ({"batch_size": 1.5}, r"batch_size must be a whole number, got 1\.5"),
        ({"batch_size": True}, "batch_size must be a whole number, got True"),
        ({"concurrency": -3}, "concurrency must not be negative or infinite, got -3"),
        ({"poll_interval": None}, "poll_interval must be a number of seconds, got None"),
        ({"poll_interval": float("nan")}, "poll_interval must not be negative or infinite, got nan"),
        ({"lock_ttl": float("inf")}, "lock_ttl must not be negative or infinite, got inf"),
        ({"single_active": "no"}, "single_active must be True or False, got 'no'"),
        ({"on_published": "drop"}, "on_published must be 'mark' or 'delete', got 'drop'"),
        ({"on_dead": "wait"}, "on_dead must be 'skip' or 'block', got 'wait'"),
        ({"last_error_max_bytes": 10}, "last_error_max_bytes must be at least 64, got 10"),
        (
            {"lock_ttl": 40.0},
            r"lock_ttl=40 s is too short: .*41 s in all; raise lock_ttl or lower the timeouts",
        ),
        ({"batchsize": 5}, "unknown relay setting batchsize; known are backoff_base, "),
    ],
)
async def test_settings_that_cannot_work_are_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Relay("postgresql://nowhere/x", table=TABLE, dispatcher=ignore, **settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"give either table= or tables=\[…\], with at least one table"),
        ({"table": TABLE, "tables": [TABLE]}, r"give either table= or tables="),
        (
            {"tables": TABLE},
            f"tables must be a sequence of names, got the str '{TABLE}'; write table= for one",
        ),
        ({"tables": [TABLE, TABLE]}, "a table is named twice"),
        ({"table": "no;table"}, "invalid table name"),
    ],
)
async def test_tables_that_cannot_be_meant_are_refused_at_once(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, InvalidTableName), match=message):
        Relay("postgresql://nowhere/x", dispatcher=ignore, **arguments)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5, "20", None, True])
async def test_durations_that_cannot_be_meant_are_refused_at_once(value: Any) -> None:
    relay = Relay("postgresql://nowhere/x", table=TABLE, dispatcher=ignore)
    calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("grace", lambda: relay.stop(value)),
        ("grace", lambda: relay.run(grace=value)),
        ("timeout", lambda: relay.run_once(timeout=value)),
        ("timeout", lambda: relay.drain(timeout=value)),
    ]
    for name, call in calls:
        with pytest.raises(ConfigError) as raised:
            await call()
        text = f"{name} must be a number of seconds that is not negative, got {value!r}"
        assert str(raised.value) == text
        assert relay.state == "stopped"


@pytest.mark.parametrize(
    ("connect", "message"),
    [
        ("password=CANARY", "connect must be a mapping of arguments of asyncpg.connect, got a str"),
        ([("password", "CANARY")], "connect must be a mapping of arguments of asyncpg.connect, got a list"),
        ({"pasword": "CANARY"}, "connect has 'pasword', which asyncpg.connect does not take .* known are "),
        ({"dsn": "CANARY"}, "connect has 'dsn', which asyncpg.connect does not take beside the database URL"),
        ({7: "CANARY"}, "connect has 7, which asyncpg.connect does not take"),
        ({"server_settings": "CANARY"}, "server_settings in connect must be a mapping of names to values"),
        ({"timeout": 3}, "^connect must not have timeout: set database_timeout instead$"),
        ({"command_timeout": 3}, "^connect must not have command_timeout: set database_timeout instead$"),
        (
            {"statement_cache_size": 0},
            "^connect must not have statement_cache_size: leave it out, for a transaction pooler is detected",
        ),
        (
            {"statement_cache_size": 0, "timeout": 3},
            "statement_cache_size: leave it out, .*; connect must not have timeout: set database_timeout instead$",
        ),
        (
            {"server_settings": {"application_name": "CANARY"}},
            (
                "^connect cannot have an application_name among its server_settings: a relay's sessions are found by"
                " theirs, 'outbox:shop.orders_outbox', when one of them is frozen; leave it out$"
            ),
        ),
    ],
)
async def test_arguments_for_the_driver_that_it_does_not_take_are_refused_at_once(
    connect: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        Relay("postgresql://nowhere/x", table=TABLE, dispatcher=ignore, connect=connect)
    assert "CANARY" not in str(raised.value)


async def test_an_address_of_another_kind_is_refused_without_showing_it() -> None:
    with pytest.raises(
        ConfigError, match="the database URL must be a str that begins with postgresql://"
    ) as raised:
        Relay("postgresql+asyncpg://app:CANARY@db/x", table=TABLE, dispatcher=ignore)
    assert "CANARY" not in str(raised.value)

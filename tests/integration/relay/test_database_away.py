"""PostgreSQL goes away or refuses, and comes back: the relay waits without harm and is at work within seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.errors import StorageUnavailable
from outbox_core.relay import Relay
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.relay.broker import Broker
from tests.integration.relay.trial import BACK_WITHIN, TABLE, Trial
from tests.kit.waiting import quiet_for, until
from tests.services.postgres import PostgresServer
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]


@pytest.fixture(scope="module")
def server(services: Services) -> Iterator[PostgresServer]:
    """A durable PostgreSQL of these tests' own. Each leaves it running."""
    with skipped_or_failed_when_missing(), services.private(PostgresServer) as started:
        yield started


@pytest_asyncio.fixture
async def breakable(server: PostgresServer, unique_name: str, tmp_path: Path) -> AsyncIterator[Trial]:
    with server.fresh_database(f"outbox_test_{unique_name}") as database:
        async with Trial.opened(database.dsn, tmp_path) as opened:
            yield opened


@pytest.mark.parametrize(
    ("how", "single_active"),
    [("kill", True), ("stop", True), ("kill", False)],
    ids=["kill", "stop", "workers"],
)
async def test_the_server_restarts(
    breakable: Trial, server: PostgresServer, how: str, single_active: bool
) -> None:
    async with breakable.running(single_active=single_active):
        await breakable.enqueue(5)
        await breakable.until_published(5)
        await breakable.enqueue(3, delay=0.5)
        await asyncio.to_thread(getattr(server, how))
        await until(lambda: bool(breakable.journal.events("Reconnecting")), 5.0, "noticing it")
        await asyncio.to_thread(server.start)
        back = time.monotonic()
        await breakable.reconnect()
        await breakable.enqueue(2)
        await breakable.until_published(10)
        assert time.monotonic() - back < BACK_WITHIN
    await breakable.expect_one_delivery_each()


async def test_a_long_outage_does_not_make_completions_wait_long(
    breakable: Trial, server: PostgresServer
) -> None:
    """What the broker acknowledged during the outage is on record before its lease is over, so nobody repeats it."""
    settings: dict[str, Any] = {
        "backoff_base": 30.0,
        "backoff_cap": 60.0,
        "lock_ttl": 20.0,
        "dispatch_timeout": 3.0,
    }
    broker = Broker(breakable.journal)
    await breakable.enqueue(1, "held")
    async with breakable.running(broker=broker, **settings):
        await until(lambda: bool(breakable.journal.read("dispatch")), 5.0, "the dispatch")
        await asyncio.to_thread(server.kill)
        broker.let_go.set()
        await until(lambda: len(breakable.journal.events("Reconnecting")) >= 2, 8.0, "noticing it")
        assert breakable.journal.delivered() == [1]
        await asyncio.to_thread(server.start)
        back = time.monotonic()
        await breakable.reconnect()
        await breakable.until_published(1, 15.0)
        assert time.monotonic() - back < BACK_WITHIN
    assert breakable.journal.delivered() == [1]


async def test_the_server_becomes_read_only(breakable: Trial) -> None:
    async with breakable.running():
        await breakable.enqueue(2)
        await breakable.until_published(2)
        await breakable.enqueue(3, delay=0.4)
        await _read_only(breakable, "on")
        try:
            await until(lambda: bool(breakable.journal.events("LeaderLost")), 5.0, "stepping down")
            await until(lambda: _refused(breakable, "25006"), 5.0, "a refused write")
        finally:
            await _read_only(breakable, "off")
        assert await breakable.until_published(5) < BACK_WITHIN
    await breakable.expect_one_delivery_each()


async def test_sessions_that_are_read_only_for_good_are_given_up(trial: Trial) -> None:
    """As those are that came to a stand-by while a name led there: the server does not end them."""
    name = await trial.admin.fetchval("SELECT current_database()")
    async with trial.running():
        await _bears_refusals(
            trial,
            "25006",
            5.0,
            deny=f'ALTER DATABASE "{name}" SET default_transaction_read_only = on',
            allow=f'ALTER DATABASE "{name}" RESET default_transaction_read_only',
        )
    await trial.expect_one_delivery_each()


async def _bears_refusals(trial: Trial, code: str, within: float, *, deny: str, allow: str) -> None:
    """A relay that has to connect anew is refused with a code, which it tells in time, and is back once it is not."""
    await trial.enqueue(2)
    await trial.until_published(2)
    await trial.admin.execute(deny)
    assert await trial.end_sessions()
    await trial.enqueue(3)
    await until(lambda: _refused(trial, code), within, f"a refusal with {code}")
    await trial.admin.execute(allow)
    assert await trial.until_published(5) < BACK_WITHIN


def _refused(trial: Trial, code: str) -> bool:
    return any(code in line["error"] for line in trial.journal.events("Reconnecting"))


async def _read_only(trial: Trial, value: str) -> None:
    await trial.admin.execute("SET default_transaction_read_only = off")
    await trial.admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    await trial.admin.execute("SELECT pg_reload_conf()")


async def test_no_more_connections_are_to_be_had(breakable: Trial, unique_name: str) -> None:
    await breakable.admin.execute(f"CREATE ROLE {unique_name} LOGIN")
    await breakable.admin.execute(schema.roles(TABLE, relay=unique_name))
    async with breakable.running(breakable.dsn.replace("//postgres@", f"//{unique_name}@")):
        await _bears_refusals(
            breakable,
            "53300",
            8.0,
            deny=f"ALTER ROLE {unique_name} CONNECTION LIMIT 0",
            allow=f"ALTER ROLE {unique_name} CONNECTION LIMIT -1",
        )
    await breakable.expect_one_delivery_each()


async def test_sessions_are_terminated_again_and_again(trial: Trial) -> None:
    async with trial.running():
        for round_ in range(1, 6):
            await trial.enqueue(4)
            assert await trial.end_sessions()
            await trial.enqueue(4)
            await trial.until_published(8 * round_)
    assert set(trial.journal.delivered()) == set(range(1, 41))
    assert trial.journal.events("LeaderLost")


@pytest.mark.parametrize("single_active", [True, False], ids=["leader", "worker"])
async def test_without_its_listener_a_relay_finds_messages_by_looking(
    trial: Trial, single_active: bool
) -> None:
    poll = 0.5
    async with trial.running(single_active=single_active, takeover=60.0, poll_interval=poll):
        await trial.enqueue(1)
        await trial.until_published(1)
        control = await trial.until_session(
            "query IN ('LISTEN outbox', 'SELECT 1') OR query LIKE '%holder = $1%'"
        )
        await trial.admin.execute("SELECT pg_terminate_backend($1)", control)
        for sequence in range(2, 5):
            # By then it is calm: after work a relay polls without a pause for a while.
            await quiet_for(poll / 2, lambda before=sequence: len(trial.journal.delivered()) >= before)
            await trial.enqueue(1)
            assert await trial.until_published(sequence, 3.0) < poll + 0.5


async def test_an_idle_relay_asks_little(server: PostgresServer, breakable: Trial) -> None:
    name = await breakable.admin.fetchval("SELECT current_database()")
    await breakable.admin.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
    relay = breakable.relay(
        poll_interval=1.0, takeover=8.0, lock_ttl=60.0, dispatch_timeout=30.0, database_timeout=5.0
    )
    async with relay:
        await until(lambda: bool(breakable.journal.events("LeaderGained")), 5.0, "leading")

        def statements() -> int:
            return server.log.read_text().count("execute ")

        first = statements() + 20  # the burst of its start is over by then
        await until(lambda: statements() >= first, 30.0, "its first statements")
        seconds = await until(lambda: statements() >= first + 20, 30.0, "twenty statements")
    assert seconds >= 20 / 4 - 0.5


class TokenServiceDownError(Exception):
    """What an application's own function may raise."""


async def _borne_reasons(trial: Trial, fail: Callable[[], Awaitable[None]]) -> set[str]:
    """A function that gives the password fails for a while, which a running relay bears; what it said of it."""
    failing, failed = False, 0

    async def password() -> str:
        nonlocal failed
        if failing:
            failed += 1
            await fail()
        return "unused"

    async with trial.running(connect={"password": password}) as relay:
        await trial.enqueue(1)
        await trial.until_published(1)
        failing = True
        assert await trial.end_sessions()
        await until(lambda: failed >= 3, 10.0, "failing to connect")
        assert relay.state == "running"
        failing = False
        await trial.enqueue(1)
        await trial.until_published(2)
    return {event["error"] for event in trial.journal.events("Reconnecting")}


@pytest.mark.parametrize(
    "failure",
    [
        TokenServiceDownError("CANARY"),
        KeyError("CANARY"),
        asyncpg.ClientConfigurationError("root certificate CANARY does not exist"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_whatever_keeps_a_running_relay_from_connecting_is_borne(
    trial: Trial, failure: Exception
) -> None:
    async def fail() -> None:
        raise failure

    reasons = await _borne_reasons(trial, fail)
    assert any(type(failure).__name__ in reason for reason in reasons)
    assert not any("CANARY" in reason for reason in reasons)


async def test_what_keeps_a_relay_from_starting_is_told_as_it_is(trial: Trial) -> None:
    async def password() -> str:
        raise TokenServiceDownError("throttled")

    with pytest.raises(TokenServiceDownError, match="throttled"):
        await trial.relay(connect={"password": password}).start()


async def test_a_password_that_somebody_cancels_is_waited_for_again(trial: Trial) -> None:
    """As when a library stops refreshing its token: that is no stop of the relay's own."""

    async def be_cancelled() -> None:
        refreshing = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(refreshing.cancel)
        await refreshing

    reasons = await _borne_reasons(trial, be_cancelled)
    text = "cannot connect to the database: what gives the password ended with CancelledError"
    assert any(text in reason for reason in reasons)


@pytest.mark.parametrize("form", [Relay.start, Relay.drain, Relay.run_once])
async def test_a_password_that_somebody_cancels_keeps_a_relay_from_starting(
    trial: Trial, form: Callable[[Relay], Awaitable[object]]
) -> None:
    async def password() -> str:
        raise asyncio.CancelledError("from elsewhere")

    relay = trial.relay(connect={"password": password})
    async with asyncio.timeout(10.0):
        with pytest.raises(StorageUnavailable, match="what gives the password ended with CancelledError"):
            await form(relay)
    assert relay.state == "stopped"

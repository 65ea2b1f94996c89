"""``outbox relay --once``: its exit code says whether what was due was delivered, and one line says why it was not."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.integration.cli.command import PATIENCE, Result, background, outbox
from tests.integration.cli.sql import OTHER, TABLE, add, fetch, states
from tests.services.nats import NatsServer

AWAY = "nats://127.0.0.1:1"


@pytest.fixture
def dsn(two_tables: str) -> str:
    return two_tables


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a broker that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"nats://127.0.0.1:{server.getsockname()[1]}"


def once(dsn: str, to: str, *args: str) -> Result:
    return outbox("relay", "--once", "-t", TABLE, "--to", to, *args, database=dsn)


def error(result: Result) -> str:
    lines = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.err
    assert "Traceback" not in result.err
    return lines[0]


def test_nothing_is_due(dsn: str, nats_server: NatsServer) -> None:
    result = once(dsn, nats_server.address)
    assert result.code == 0, result.err
    assert "0 message(s) published, 0 put off, 0 dead" in result.err


def test_the_broker_is_away(dsn: str) -> None:
    add(dsn, "pending", 3)
    result = once(dsn, AWAY)
    assert result.code == 7, result.err
    assert error(result).startswith("error: 0 message(s) published; what else is due waits, nats")
    assert "is away: PROVIDER.UNAVAILABLE" in error(result)
    assert states(dsn) == {"pending": 3}


def test_every_delivery_fails(dsn: str, nats_server: NatsServer) -> None:
    """No stream takes the topic."""
    add(dsn, "pending", 3)
    result = once(dsn, nats_server.address)
    assert result.code == 7, result.err
    assert "no message was published: of 3 deliveries that failed, 0 made their message dead and 3" in error(
        result
    )
    assert states(dsn) == {"pending": 3}


def test_every_delivery_fails_for_good(dsn: str, nats_server: NatsServer) -> None:
    add(dsn, "pending", 2)
    result = once(dsn, nats_server.address, "--max-attempts", "1")
    assert result.code == 7, result.err
    assert "of 2 deliveries that failed, 2 made their message dead and 0 will be tried again" in error(result)
    assert states(dsn) == {"dead": 2}


def test_another_relay_leads(dsn: str, nats_server: NatsServer) -> None:
    with background("relay", "-t", OTHER, "--to", nats_server.address, database=dsn) as leading:
        leading.wait_for("leading, term 1")
        result = once(dsn, nats_server.address, "-t", OTHER)
        assert result.code == 13, result.err
        assert error(result) == (
            f"error: 0 message(s) published; another relay leads {OTHER} and delivers what is due there"
        )
        alone = once(dsn, nats_server.address)
        assert alone.code == 0, alone.err
        assert leading.stop() == 0


def test_relays_that_share_a_table_have_no_leader(dsn: str, nats_server: NatsServer) -> None:
    result = once(dsn, nats_server.address, "--no-single-active")
    assert result.code == 0, result.err


def test_a_table_that_is_not_there(dsn: str, nats_server: NatsServer) -> None:
    result = once(dsn, nats_server.address, "-t", "shop.missing_outbox")
    assert (result.code, "shop.missing_outbox: there is no such table" in error(result)) == (6, True)


def test_sigterm_breaks_it_off(dsn: str, silent: str) -> None:
    with background("relay", "--once", "-t", TABLE, "--to", silent, database=dsn) as job:
        until_connected(dsn)
        assert job.stop(signal.SIGTERM) == 130
    assert "error: interrupted" in "".join(job.seen)


def until_connected(dsn: str) -> None:
    """A relay has a session, and by then listens to signals."""
    sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'outbox:shop.orders_outbox'"
    deadline = time.monotonic() + PATIENCE
    while not fetch(dsn, sessions):
        assert time.monotonic() < deadline
        time.sleep(0.02)

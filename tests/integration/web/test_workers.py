"""A real server with two processes that both have a relay, told to stop while requests come in."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count, groupby
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.relay.journal import Journal
from tests.integration.web.shop import TABLE, Shop
from tests.kit.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(150)]
ROOT = Path(__file__).parents[3]
CLIENTS = 4


class Site:
    """The server, its clients and what became of their orders."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port: int = taken.getsockname()[1]
        self.shop = shop
        self.folder = folder
        self.journal = Journal(folder / "journal")
        self.log = folder / "server.log"
        self.accepted: list[int] = []
        self.numbers = count()

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[bytes]]:
        """uvicorn as its command line starts it; whatever is left of it in the end is killed."""
        environ = os.environ | {
            "OUTBOX_DATABASE_URL": self.shop.dsn,
            "OUTBOX_RELAY_TABLES": TABLE,
            "OUTBOX_RELAY_GRACE": "10s",
            "SHOP_JOURNAL": str(self.journal.path),
        }
        command = [sys.executable, "-m", "uvicorn", "tests.integration.web.server_app:app"]
        options = ["--workers", "2", "--port", str(self.port), "--no-access-log"]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*command, *options, "--timeout-graceful-shutdown", "10"],
                cwd=ROOT,
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait(timeout=20)

    async def up(self) -> None:
        """Both processes serve."""

        def both() -> bool:
            return self.log.read_text().count("Application startup complete") >= 2

        try:
            await until(both, timeout=60)
        except AssertionError:
            pytest.fail(self.log.read_text())

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Clients that order without a pause until the end of the block."""
        enough = asyncio.Event()

        async def order(client: httpx.AsyncClient) -> None:
            while not enough.is_set():
                number = next(self.numbers)
                try:
                    response = await client.post(f"http://127.0.0.1:{self.port}/orders/{number}")
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
                    continue
                if response.status_code == 201:
                    self.accepted.append(number)
                else:
                    assert (response.status_code, number % 10) == (409, 9)

        # A connection for each order, so that both processes get some.
        once = httpx.Limits(max_keepalive_connections=0)
        async with (
            httpx.AsyncClient(timeout=20.0, limits=once) as client,
            asyncio.TaskGroup() as clients,
        ):
            for _ in range(CLIENTS):
                clients.create_task(order(client))
            try:
                yield
            finally:
                enough.set()

    def leader(self) -> int:
        """The process that delivered last."""
        return int(self.journal.read("ack")[-1]["pid"])

    def delivered(self) -> list[int]:
        return [line["order"] for line in self.journal.read("ack")]

    async def check(self) -> None:
        """Each order has its message, each message was delivered, and nothing else was."""
        messages = await self.shop.messages()
        assert await self.shop.orders() == messages
        assert set(self.accepted) <= set(messages)
        assert not [number for number in messages if number % 10 == 9]
        assert sorted(self.delivered()) == messages
        assert await self.shop.states() == {"published": len(messages)}

    async def settled(self) -> None:
        async def all_published() -> bool:
            return "pending" not in await self.shop.states()

        await until(all_published, timeout=60)


async def test_the_survivor_delivers_what_the_leader_leaves(shop: Shop, tmp_path: Path) -> None:
    site = Site(shop, tmp_path)
    with site.server() as server:
        await site.up()
        async with site.load():
            await until(lambda: len(site.delivered()) > 40, timeout=40)
            first = site.leader()
            os.kill(first, signal.SIGTERM)
            await until(lambda: site.leader() != first, timeout=40)
            second = site.leader()
            seen = len(site.delivered())
            await until(lambda: len(site.delivered()) > seen + 40, timeout=40)
        await site.settled()
        await site.check()
        # One at a time: whoever led before never comes back in between.
        turns = [pid for pid, _ in groupby(line["pid"] for line in site.journal.read("ack"))]
        assert len(turns) == len(set(turns))
        assert turns[:2] == [first, second]
        assert server.poll() is None


async def test_a_server_that_stops_under_load_loses_nothing(shop: Shop, tmp_path: Path) -> None:
    site = Site(shop, tmp_path)
    with site.server() as server:
        await site.up()
        async with site.load():
            await until(lambda: len(site.delivered()) > 50, timeout=40)
            began = time.monotonic()
            server.send_signal(signal.SIGTERM)
            await until(lambda: server.poll() is not None, timeout=40)
        assert time.monotonic() - began < 25
        assert "Application shutdown failed" not in site.log.read_text()

    async def no_sessions() -> bool:
        count: int = await shop.connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name LIKE 'outbox:%' AND datname = current_database()"
        )
        return count == 0

    await until(no_sessions)
    leased = await shop.connection.fetchval(f"SELECT count(*) FROM {TABLE} WHERE lock_token IS NOT NULL")  # noqa: S608
    assert leased == 0
    with site.server():
        await site.settled()
        await site.check()

"""The small HTTP server: what it answers, what it refuses, and that nobody can hold it up."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from contextlib import suppress

import pytest

from outbox_core import Relay
from outbox_core.errors import ConfigError
from outbox_core.integrations import http as module
from outbox_core.integrations.http import Address, Answer, Request, Route, health_routes, serve
from outbox_core.stores.memory import MemoryStore
from tests.kit.tuning import tune
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


def hello(request: Request) -> Answer:
    return Answer(200, f"{request.path} {request.accept}".encode())


def broken(request: Request) -> Answer:
    raise RuntimeError("CANARY")


ROUTES: dict[str, Route] = {"/hello": hello, "/broken": broken}


async def ask(
    address: Address, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """What the standard library's client makes of the answer."""

    def exchange() -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    return await asyncio.to_thread(exchange)


async def send(address: Address, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(text)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def test_a_route_is_asked_by_its_exact_path() -> None:
    async with serve("127.0.0.1", 0, ROUTES) as address:
        status, headers, body = await ask(address, "/hello?x=1", headers={"Accept": "text/plain"})
        assert (status, body) == (200, b"/hello text/plain")
        assert headers["content-length"] == str(len(body))
        assert headers["connection"] == "close"
        assert headers["cache-control"] == "no-store"
        assert (await ask(address, "/hello", "HEAD"))[::2] == (200, b"")
        assert (await ask(address, "/hello/more"))[::2] == (404, b"there is /broken, /hello\n")


async def test_what_it_refuses() -> None:
    async with serve("127.0.0.1", 0, ROUTES) as address:
        status, headers, _ = await ask(address, "/hello", "POST")
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert b" 400 Bad Request" in await send(address, b"nonsense\r\n\r\n")
        assert b" 400 Bad Request" in await send(address, b"GET /hello SMTP/1.0\r\n\r\n")
        long = b"GET /hello HTTP/1.1\r\nx: " + b"x" * module.MAX_REQUEST_BYTES + b"\r\n\r\n"
        assert b" 431 Request Header Fields Too Large" in await send(address, long)
        assert (await ask(address, "/hello"))[0] == 200


async def test_a_route_that_fails_says_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with serve("127.0.0.1", 0, ROUTES) as address:
        assert (await ask(address, "/broken"))[::2] == (500, b"the answer failed; see the log\n")
    assert "the answer to GET /broken failed" in caplog.text


async def test_a_slow_request_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, http_request_seconds=0.1)
    async with serve("127.0.0.1", 0, ROUTES) as address:
        assert b" 408 Request Timeout" in await send(address, b"GET /hello HTTP/1.1\r\n")


async def test_connections_are_bounded_and_end_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, http_max_connections=2)
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with serve("127.0.0.1", 0, ROUTES) as address:
        for _ in range(2):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"GET")
            opened.append((reader, writer))
        await until(
            lambda: len([task for task in asyncio.all_tasks() if task.get_name() == "outbox-http"]) == 2
        )
        with pytest.raises((OSError, http.client.HTTPException)):
            await ask(address, "/hello")
    for reader, writer in opened:
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "outbox-http"]


async def test_an_address_in_use_is_said_clearly() -> None:
    async with serve("127.0.0.1", 0, ROUTES) as address:
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{address.port}: "):
            async with serve("127.0.0.1", address.port, ROUTES):
                pass
    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:99999"):
        async with serve("127.0.0.1", 99999, ROUTES):
            pass


@pytest.mark.parametrize("path", ["metrics", "/a b", "/a?b", "/a#b"])
async def test_a_path_is_a_path(path: str) -> None:
    with pytest.raises(ConfigError, match="a path must begin with /"):
        async with serve("127.0.0.1", 0, {path: hello}):
            pass


async def test_health_of_a_relay_over_http() -> None:
    async def publish(_message: object) -> None: ...

    relay = Relay(lambda: MemoryStore(), table="orders_outbox", dispatcher=publish)
    async with serve("127.0.0.1", 0, health_routes(relay)) as address:
        status, headers, body = await ask(address, "/healthz")
        assert (status, headers["content-type"]) == (503, "application/json")
        assert json.loads(body)["reasons"] == ["the relay is stopped"]
        assert (await ask(address, "/healthz/live"))[0] == 503
        async with relay:
            for path in ("/healthz", "/healthz/live", "/healthz/ready", "/healthz/lag"):
                status, _, body = await ask(address, path)
                assert (status, json.loads(body)["ready"]) == (200, True)

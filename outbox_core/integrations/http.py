"""A small HTTP server for a relay without a web application: metrics for Prometheus, health for an orchestrator.

async with serve("127.0.0.1", 9464, {"/metrics": metrics_route(registry), **health_routes(relay)}) as address:
    ...

It knows GET and HEAD of the given paths and nothing else: no bodies, no keep-alive, no TLS, no login. Requests are
bounded in size, time and number.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from outbox_core.errors import ConfigError
from outbox_core.relay.health import Health, HealthLimits

if TYPE_CHECKING:
    from outbox_core.relay import Relay

MAX_REQUEST_BYTES: Final = 8 * 1024
REQUEST_SECONDS: Final = 5.0
"""For a request to arrive, and again for its answer to be taken."""
MAX_CONNECTIONS: Final = 32
_CLOSING_SECONDS: Final = 1.0
_logger: Final = logging.getLogger("outbox_core.http")


@dataclass(frozen=True, slots=True)
class Request:
    """What a route is asked: the path without its query, and the ``Accept`` header."""

    path: str
    accept: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a route answers."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. The port is a real one also when 0 was asked for."""

    host: str
    port: int


Route: TypeAlias = Callable[[Request], Answer]
"""Called on the event loop: return at once."""


@asynccontextmanager
async def serve(host: str, port: int, routes: Mapping[str, Route]) -> AsyncGenerator[Address]:
    """Serve the routes, each under its exact path, until the block ends.

    There is no login: give the address of an interface that only the monitoring reaches. Raises `ConfigError` when the
    address cannot be listened on.
    """
    server = _Server(routes)
    try:
        listening = await asyncio.start_server(server.connected, host, port, limit=MAX_REQUEST_BYTES)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    try:
        name = cast("tuple[str, int]", listening.sockets[0].getsockname())
        yield Address(name[0], name[1])
    finally:
        listening.close()
        await server.close()


def health_routes(relay: Relay, limits: HealthLimits | None = None) -> dict[str, Route]:
    """``/healthz/live``, ``/healthz/ready`` and ``/healthz/lag``: 200 or 503, with the reasons as JSON.

    ``/healthz`` is 200 when the relay is ready, whether or not it lags.
    """
    bounds = HealthLimits() if limits is None else limits

    def route(good: Callable[[Health], bool]) -> Route:
        def answer(_request: Request) -> Answer:
            health = relay.health(bounds)
            status = HTTPStatus.OK if good(health) else HTTPStatus.SERVICE_UNAVAILABLE
            return Answer(status, json.dumps(health.as_json()).encode() + b"\n", "application/json")

        return answer

    return {
        "/healthz": route(lambda health: health.ready),
        "/healthz/live": route(lambda health: health.live),
        "/healthz/ready": route(lambda health: health.ready),
        "/healthz/lag": route(lambda health: not health.lagging),
    }


class _Server:
    def __init__(self, routes: Mapping[str, Route]) -> None:
        for path in routes:
            if not path.startswith("/") or any(character in path for character in "?# \r\n"):
                raise ConfigError(f"a path must begin with / and have no space, ? or #, got {path!r}")
        self._routes = dict(routes)
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._converse(reader, writer), name="outbox-http")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cut what is still under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING_SECONDS)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                answer, head_only = await self._ask(reader)
                writer.write(_encoded(answer, head_only=head_only))
                async with asyncio.timeout(REQUEST_SECONDS):
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"the request is too large\n"), False
        except TimeoutError:
            return Answer(HTTPStatus.REQUEST_TIMEOUT, b"the request did not arrive in time\n"), False
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Answer(HTTPStatus.BAD_REQUEST, b"expected an HTTP/1.1 request\n"), False
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n"), False
        return self._answer(Request(target.partition("?")[0], _accept(lines[1:]))), method == "HEAD"

    def _answer(self, request: Request) -> Answer:
        route = self._routes.get(request.path)
        if route is None:
            paths = ", ".join(sorted(self._routes))
            return Answer(HTTPStatus.NOT_FOUND, f"there is {paths}\n".encode())
        try:
            return route(request)
        except Exception:
            _logger.exception("the answer to GET %s failed", request.path)
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the answer failed; see the log\n")


def _accept(lines: list[str]) -> str:
    headers = (line.partition(":") for line in lines)
    return ",".join(value.strip() for name, _, value in headers if name.lower() == "accept")


def _encoded(answer: Answer, *, head_only: bool) -> bytes:
    status = HTTPStatus(answer.status)
    allow = "allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"content-type: {answer.content_type}\r\n"
        f"content-length: {len(answer.body)}\r\n"
        f"{allow}cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if head_only else answer.body)

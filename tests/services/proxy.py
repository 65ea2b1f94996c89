"""A proxy between a client and its server that injects network faults.

`FaultProxy` looks after connections; `tests.services.pipe` carries their bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from tests.services.pipe import CutError, Lane, Pipe, Rule, Signal

LOCALHOST = "127.0.0.1"
POSTGRES_SOCKET = ".s.PGSQL."
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 5.0

Direction = Literal["requests", "responses"]
Address = tuple[str, int] | Path


class FaultProxy:
    """Listens for clients, forwards to one server, and misbehaves on request.

        async with FaultProxy.to("127.0.0.1", port) as proxy:
            proxy.hold_responses()

    Every rule replaces the one before it and applies to open and new connections alike. `pass_through` heals:
    what was held is delivered in order. A sender's end of stream or reset travels behind its bytes, so a held
    connection looks alive to the other side. Each direction buffers 1 MiB per connection, then its sender blocks.
    Unix sockets know no reset: their peers see an end of stream, or a reset when bytes of theirs were not read.

    It listens on a free port of 127.0.0.1, or on the port or unix socket path given as `listen`. The counters
    `accepted`, `refused`, `resets`, `cuts` and `unreachable` are of connections since the start; `requests` and
    `responses` count bytes.
    """

    def __init__(self, upstream: Address, *, listen: int | Path = 0) -> None:
        self._upstream = upstream
        self._listen = listen
        self._server: asyncio.Server | None = None
        self._refusing = False
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._watchers = Signal()
        self.requests = Lane(self._watchers)
        self.responses = Lane(self._watchers)
        self.accepted = self.refused = self.resets = self.cuts = self.unreachable = 0

    @classmethod
    def to(cls, host: str, port: int, *, listen: int | Path = 0) -> Self:
        return cls((host, port), listen=listen)

    @classmethod
    def to_unix(cls, path: Path, *, listen: int | Path = 0) -> Self:
        return cls(path, listen=listen)

    @classmethod
    def to_postgres(cls, dsn: str, *, listen: int | Path = 0) -> Self:
        """A proxy to the server of a PostgreSQL URL, be it named by host or by `?host=<folder of its socket>`."""
        url = urlsplit(dsn)
        query = dict(parse_qsl(url.query))
        host = url.hostname or query.get("host", LOCALHOST)
        port = url.port or int(query.get("port", "5432"))
        return cls(
            Path(host) / f"{POSTGRES_SOCKET}{port}" if host.startswith("/") else (host, port), listen=listen
        )

    async def __aenter__(self) -> Self:
        if isinstance(self._listen, Path):
            self._server = await asyncio.start_unix_server(self._accept, self._listen)
        else:
            self._server = await asyncio.start_server(self._accept, LOCALHOST, self._listen)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop every connection and stop listening, within 5 s. Harmless when repeated."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        if isinstance(self._listen, Path):
            self._listen.unlink(missing_ok=True)
        for task, writers in self._connections.items():
            task.cancel()
            for writer in writers:
                writer.transport.abort()
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.gather(*self._connections, return_exceptions=True)
            await server.wait_closed()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to; an error when the proxy is closed or listens on a unix socket."""
        if self._server is None or isinstance(self._listen, Path):
            raise RuntimeError(f"{self} has no TCP address: enter it first, and let it listen on a port")
        host, port = self._server.sockets[0].getsockname()
        return host, port

    @property
    def port(self) -> int:
        return self.address[1]

    def dsn(self, dsn: str) -> str:
        """The same PostgreSQL URL led through this proxy.

        A proxy on a unix socket must listen at `<folder>/.s.PGSQL.<port>`, where PostgreSQL clients look.
        """
        url = urlsplit(dsn)
        if not url.scheme.startswith("postgres"):
            raise ValueError(
                "cannot lead this DSN through a proxy: give a URL that starts with postgresql://"
            )
        pairs = parse_qsl(url.query, keep_blank_values=True)
        query = [pair for pair in pairs if pair[0] not in {"host", "hostaddr", "port"}]
        user, at, _ = url.netloc.rpartition("@")
        if isinstance(self._listen, Path):
            port = self._listen.name.removeprefix(POSTGRES_SOCKET)
            if not port.isdecimal():
                raise ValueError(
                    f"PostgreSQL clients find sockets named {POSTGRES_SOCKET}<port>, not {self._listen}"
                )
            netloc = user + at
            query += [("host", str(self._listen.parent)), ("port", port)]
        else:
            netloc = f"{user}{at}{LOCALHOST}:{self.port}"
        return url._replace(netloc=netloc, query=urlencode(query, quote_via=quote, safe="/")).geturl()

    def pass_through(self) -> None:
        """Let everything pass, first what was held."""
        self._apply(Rule())

    def hold_requests(self) -> None:
        """The server hears nothing more; its own bytes still arrive."""
        self._apply(Rule(hold=True), "requests")

    def hold_responses(self) -> None:
        """The server hears and acts; its answers do not arrive."""
        self._apply(Rule(hold=True), "responses")

    def hold(self) -> None:
        """A black hole: connections open, and nothing moves either way."""
        self._apply(Rule(hold=True))

    def delay(self, seconds: float, direction: Direction | None = None) -> None:
        """Deliver each byte so long after its arrival, both ways unless told otherwise."""
        self._apply(Rule(delay_seconds=seconds), direction)

    def throttle(self, bytes_per_second: float, direction: Direction | None = None) -> None:
        """Limit each connection to a rate, both ways unless told otherwise."""
        self._apply(Rule(bytes_per_second=bytes_per_second), direction)

    def cut_after(self, bytes_: int, direction: Direction = "responses") -> None:
        """Let each connection carry exactly so many more bytes one way, then close both its ends.

        Other than with `reset`, the bytes let through are sure to arrive. 0 closes when the next byte would pass.
        """
        self._apply(Rule(cut_after=bytes_), direction)

    def refuse(self) -> None:
        """Reset new connections at once; open ones pass."""
        self._apply(Rule())
        self._refusing = True

    def reset(self) -> int:
        """Reset (RST) both ends of every open connection, dropping what they held, and return how many.

        The rule in force stays, so holding and then resetting loses exactly what was held.
        """
        doomed = [task for task in self._connections if not task.cancelling()]
        for task in doomed:
            _reset(self._connections[task])
            task.cancel()
        self.resets += len(doomed)
        self._watchers.fire()
        return len(doomed)

    async def wait_for(self, condition: Callable[[FaultProxy], bool], within: float = 5.0) -> None:
        """Wait until the counters satisfy a condition, so that a test knows its fault was hit.

        `TimeoutError` with the counters when they do not in `within` seconds.
        """
        deadline = time.monotonic() + within
        while not condition(self):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the condition did not come true within {within} s: {self}")
            await self._watchers.wait(left)

    def __repr__(self) -> str:
        return (
            f"<FaultProxy to {self._upstream}: accepted={self.accepted} refused={self.refused} resets={self.resets} "
            f"cuts={self.cuts} unreachable={self.unreachable} requests={self.requests} responses={self.responses}>"
        )

    def _apply(self, rule: Rule, direction: Direction | None = None) -> None:
        self._refusing = False
        self.requests.apply(Rule() if direction == "responses" else rule)
        self.responses.apply(Rule() if direction == "requests" else rule)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing or self._server is None:
            self.refused += 1
            _reset([writer])
        else:
            self.accepted += 1
            writers = [writer]
            task = asyncio.create_task(self._serve(reader, writers), name=f"proxy connection {self.accepted}")
            self._connections[task] = writers
            task.add_done_callback(self._connections.pop)
        self._watchers.fire()

    async def _serve(self, client: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        requests, responses = Pipe(self.requests), Pipe(self.responses)
        try:
            server, writer = await self._connect()
            writers.append(writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(requests.receive(client), name="proxy receives requests")
                group.create_task(requests.forward(writer), name="proxy forwards requests")
                group.create_task(responses.receive(server), name="proxy receives responses")
                group.create_task(responses.forward(writers[0]), name="proxy forwards responses")
        except* CutError:
            self.cuts += 1
        except* OSError:
            _reset(writers)
        finally:
            requests.drop()
            responses.drop()
            for writer in writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if isinstance(self._upstream, Path):
                    return await asyncio.open_unix_connection(self._upstream)
                return await asyncio.open_connection(*self._upstream)
        except OSError:
            self.unreachable += 1
            raise


def _reset(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        # A socket that is already closed cannot linger and needs no reset.
        with contextlib.suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

"""The servers of one test run: shared ones started once, private ones as often as asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer
from tests.services.run import Run
from tests.services.server import Server
from tests.services.sources import Foreign, Installation, Missing, choose
from tests.services.standby import StandbyServer

S = TypeVar("S", bound=Server)


class Services:
    """Nothing is looked for, provisioned or started before it is asked for. `close()` ends it all."""

    def __init__(self) -> None:
        self._origins: dict[tuple[type[Server], bool], Installation | Foreign | Missing] = {}
        self._shared: dict[type[Server], Server] = {}

    @cached_property
    def run(self) -> Run:
        """The folder, ports and processes of this test run."""
        return Run()

    def locate(self, kind: type[Server], *, private: bool = False) -> Installation | Foreign:
        """Find or provision a server without starting it. Raises `Missing`, each time after one look."""
        key = (kind, private)
        if key not in self._origins:
            try:
                hint = kind.advice(private=private)
                self._origins[key] = choose(kind.name, kind.candidates(), hint=hint, private=private)
            except Missing as missing:
                self._origins[key] = missing
        origin = self._origins[key]
        if isinstance(origin, Missing):
            raise origin
        return origin

    def shared(self, kind: type[S]) -> S:
        """The run's one server of a kind, started on first use. Tests leave it as they found it."""
        server = self._shared.get(kind)
        if server is None:
            server = kind(self.run, self.locate(kind))
            server.start()
            self._shared[kind] = server
        assert isinstance(server, kind)
        return server

    @contextmanager
    def private(self, kind: type[S], *, extra_config: str = "") -> Iterator[S]:
        """A started server for one test to freeze, kill and restart."""
        server = kind(self.run, self.locate(kind, private=True), private=True, extra_config=extra_config)
        with _started(server):
            yield server

    @contextmanager
    def pgbouncer(self, upstream: PostgresServer, *, extra_config: str = "") -> Iterator[PgBouncer]:
        """A started transaction pooler in front of `upstream`."""
        origin = self.locate(PgBouncer)
        server = PgBouncer(self.run, origin, upstream=upstream, extra_config=extra_config)
        with _started(server):
            yield server

    @contextmanager
    def standby(self, primary: PostgresServer) -> Iterator[StandbyServer]:
        """A started stand-by of a private `primary`, which is restarted for it."""
        server = StandbyServer(self.run, self.locate(PostgresServer, private=True), primary=primary)
        with _started(server):
            yield server

    def close(self) -> None:
        """End every server, remove every file. Works unused and twice."""
        for server in self._shared.values():
            server.release()
        self._shared.clear()
        if "run" in self.__dict__:
            self.run.close()
            del self.run


@contextmanager
def _started(server: Server) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.release()

"""The contract every server keeps, and the part of it that is the same for all."""

from __future__ import annotations

import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NoReturn

from tests.services.account import Account
from tests.services.process import Process
from tests.services.run import Child, Command, Run
from tests.services.sources import Candidate, Foreign, Installation, Source


class StartFailed(Exception):
    """Raised when a server does not come up in its time. The message ends with the tail of its log."""


class NotOurs(Exception):
    """Raised when a test tries to break a server that this run does not own."""


class Server(ABC):
    """One server, ours or somebody else's.

    Every method is synchronous, bounded, and may be called on any thread. None needs or touches the caller's event
    loop; in an async test call those that wait through `asyncio.to_thread`. A server of our own keeps its address and
    its data through `kill`, `stop`, `restart`; only `Run.close` throws them away.
    """

    name: ClassVar[str]
    start_timeout_s: ClassVar[float]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_timeout_s: ClassVar[float] = 15.0
    release_signal: ClassVar[signal.Signals] = signal.SIGKILL
    not_ready: ClassVar[tuple[type[Exception], ...]]
    """What `round_trip` raises while the server is not up to it; anything else is a mistake in the harness."""
    hint: ClassVar[str]
    """How to get this server's programs, in one line."""
    url_variable: ClassVar[str] = ""
    """The variable that names a server of somebody else's, for servers that may come from there or from Docker."""

    def __init__(
        self, run: Run, origin: Installation | Foreign, *, private: bool = False, extra_config: str = ""
    ) -> None:
        """`extra_config` is appended to the server's own configuration file."""
        self.private = private
        self.version = "unknown"
        self.start_seconds = 0.0
        self.extra_config = extra_config
        self._run = run
        self._origin = origin
        self._children: list[Child] = []
        self._installation: Installation | None = None
        self._prepared = False
        self.folder = Path()
        self.port = 0
        if isinstance(origin, Installation):
            self._installation = origin
            self.folder = run.folder_for(self.name.lower(), self.account)
            self.port = run.free_port()

    @property
    def source(self) -> Source:
        return self._origin.source

    @property
    def account(self) -> Account | None:
        """The account the server runs under; None for the current one."""
        return None

    @property
    def address(self) -> str:
        """What a client connects to."""
        if isinstance(self._origin, Foreign):
            return self._origin.address
        return self.own_address()

    @property
    def processes(self) -> list[Process]:
        """Every living process of a server of our own; empty while it is down or when it is not ours."""
        return [member for child in self._children for member in child.process.family()]

    @property
    def log(self) -> Path:
        """The file with everything the server printed."""
        return self.folder / "server.log"

    @property
    def installed_in(self) -> Path:
        """The folder with the server's programs, as its source gave it."""
        return self._owned("look into").folder

    @classmethod
    @abstractmethod
    def candidates(cls) -> list[Candidate]:
        """Every place this server may come from."""

    @classmethod
    def advice(cls, *, private: bool) -> str:
        """How to get this server, in one line: a private one comes from its programs alone."""
        if private or not cls.url_variable:
            return cls.hint
        return f"{cls.hint}, start a Docker engine, or set {cls.url_variable}"

    @abstractmethod
    def own_address(self) -> str:
        """The address of a server of our own."""

    @abstractmethod
    def prepare(self) -> None:
        """Write configuration and empty data, once, before the first start."""

    @abstractmethod
    def commands(self) -> Sequence[Command]:
        """What to start, in order. The last one is the server itself."""

    @abstractmethod
    def round_trip(self, *, timeout_s: float) -> str:
        """Write something and see it confirmed within `timeout_s` seconds; returns the server's version.

        Raises one of `not_ready`, TimeoutError among them, when the server is not up to it.
        """

    def start(self) -> None:
        """Start and return once a round trip succeeds. Raises `StartFailed` with the tail of the log."""
        began = time.monotonic()
        if self._installation is not None:
            if self._children:
                raise RuntimeError(f"{self.name} has already been started")
            if not self._prepared:
                self.prepare()
                self._prepared = True
            for command in self.commands():
                self._children.append(self._run.launch(command))
                self._wait_until_open(command.port, began + self.start_timeout_s)
        self._wait_until_ready(began + self.start_timeout_s)
        self.start_seconds = time.monotonic() - began

    def stop(self) -> None:
        """End in order within `stop_timeout_s`, by force after that. Works unstarted, frozen and twice."""
        for child in reversed(self._children):
            child.terminate(self.stop_signal, timeout_s=self.stop_timeout_s)
        self._children = []

    def kill(self) -> None:
        """SIGKILL, as a crash would. Returns once every process of it is gone; works on a frozen one."""
        self._owned("kill")
        for child in reversed(self._children):
            child.kill()
        self._children = []

    def restart(self) -> None:
        """Stop if it runs, and start again with the same address and the same data."""
        self._owned("restart")
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP every process of it: connections stay open, and nothing answers until `thaw`."""
        self._owned("freeze")
        for child in self._children:
            child.process.freeze()

    def thaw(self) -> None:
        """SIGCONT: the server goes on where it stood."""
        self._owned("thaw")
        for child in self._children:
            child.process.thaw()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines the server printed; empty for a server that is not ours."""
        if self._installation is None or not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def release(self) -> None:
        """The end of the server: end quickly what is ours, for its data goes too; give back what is not."""
        if isinstance(self._origin, Foreign):
            self._origin.close()
        for child in reversed(self._children):
            child.terminate(self.release_signal, timeout_s=5.0)
        self._children = []

    def _owned(self, verb: str) -> Installation:
        if self._installation is None:
            raise NotOurs(
                f"cannot {verb} the {self.name} at {self.address}: it comes from {self.source} and is not a process of "
                f"this run; tests that break a server take a private one"
            )
        return self._installation

    def _wait_until_open(self, port: int, deadline: float) -> None:
        while not _is_open(port):
            self._check_starting()
            if time.monotonic() > deadline:
                self._give_up(f"did not open port {port} within {self.start_timeout_s:.0f} s")
            time.sleep(0.02)

    def _wait_until_ready(self, deadline: float) -> None:
        obstacle: Exception | None = None
        while (left := deadline - time.monotonic()) > 0:
            self._check_starting()
            try:
                self.version = self.round_trip(timeout_s=min(left, 5.0))
            except self.not_ready as error:
                obstacle = error
            else:
                return
            time.sleep(0.05)
        self._give_up(f"did not answer within {self.start_timeout_s:.0f} s: {obstacle!r}")

    def _check_starting(self) -> None:
        for child in self._children:
            if child.exit_code is not None:
                self._give_up(f"ended with exit code {child.exit_code} while starting")

    def _give_up(self, reason: str) -> NoReturn:
        where = f"{self.name} from {self.source} at {self.address}"
        if self._installation is None:
            raise StartFailed(f"{where} {reason}")
        self.kill()
        tail = self.log_tail() or "(nothing printed)"
        raise StartFailed(f"{where} {reason}\nlast lines of its log:\n{tail}")


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True

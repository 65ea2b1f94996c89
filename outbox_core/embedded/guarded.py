"""A process that cannot outlive this one."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.embedded import guard
from outbox_core.errors import EmbeddedServerError

if TYPE_CHECKING:
    from anyio.abc import Process

    from outbox_core.embedded.account import Account

_START_TIMEOUT: Final = 20.0
_MARGIN: Final = 5.0
"""Seconds a guard may take beyond the patience it has with its program."""
_TAIL_LINES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run: ``arguments`` after all of ``before`` have succeeded. Whatever they print goes to ``log``.

    ``stop`` is the signal that ends it and ``patience`` the seconds after which it is killed; ``orphaned`` is the
    signal it gets should its guard be killed. ``environment`` is the whole of it; None: this process's own. The folder
    ``remove`` is deleted once it has been stopped, or this process is gone.
    """

    name: str
    arguments: Sequence[str]
    folder: Path
    log: Path
    before: Sequence[Sequence[str]] = ()
    environment: Mapping[str, str] | None = None
    account: Account | None = None
    stop: signal.Signals = signal.SIGTERM
    orphaned: signal.Signals = signal.SIGKILL
    patience: float = 5.0
    remove: Path | None = None

    def as_json(self) -> str:
        """As the guard reads it."""
        return json.dumps(
            {
                "commands": [*map(list, self.before), list(self.arguments)],
                "folder": str(self.folder),
                "log": str(self.log),
                "user": None if self.account is None else self.account.user,
                "group": None if self.account is None else self.account.group,
                "stop": int(self.stop),
                "orphaned": int(self.orphaned),
                "patience": self.patience,
                "remove": None if self.remove is None else str(self.remove),
            }
        )


class Guarded:
    """A running command, in a session of its own so that the terminal's Ctrl-C does not reach it."""

    def __init__(self, command: Command, process: Process) -> None:
        self.command = command
        self.pid = 0
        """Of the first program that was started, which is the command itself when nothing goes before it."""
        self._process = process

    @classmethod
    async def start(cls, command: Command) -> Guarded:
        """Start it; `EmbeddedServerError` says why that was not possible."""
        process = await anyio.open_process(
            [sys.executable, "-I", "-S", guard.__file__, command.as_json()],
            stderr=None,
            env=command.environment,
            start_new_session=True,
        )
        guarded = cls(command, process)
        try:
            await guarded._hear()
        except BaseException:
            await guarded.stop()
            raise
        return guarded

    async def _hear(self) -> None:
        said = b""
        with anyio.move_on_after(_START_TIMEOUT):
            while not said.endswith(b"\n") and self._process.stdout is not None:
                try:
                    said += await self._process.stdout.receive()
                except anyio.EndOfStream:
                    break
        first = said.decode(errors="replace").partition("\n")[0]
        if not first.isdecimal():
            reason = first.removeprefix("!") or f"its guard did not start within {_START_TIMEOUT:g} s"
            raise EmbeddedServerError(self.command.name, reason)
        self.pid = int(first)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 and the signal's number when a signal ended it."""
        return self._process.returncode

    def log_tail(self) -> str:
        """The last lines it printed."""
        try:
            lines = self.command.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "(it left no log)"
        return "\n".join(lines[-_TAIL_LINES:]) or "(it printed nothing)"

    def check(self) -> None:
        """Raise `EmbeddedServerError` with the tail of its log when it does not run any more."""
        if self.exit_code is not None:
            raise EmbeddedServerError(
                self.command.name,
                f"it ended with exit code {self.exit_code}; its last lines:\n{self.log_tail()}",
            )

    async def send(self, number: signal.Signals) -> None:
        """Signal it; nothing happens when it has ended."""
        if self._process.stdin is not None and self.exit_code is None:
            try:
                await self._process.stdin.send(bytes([number]))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def wait(self) -> int:
        """Wait for its end; the exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """End it and wait for that, a bounded time, even when the caller is cancelled. May be called twice."""
        with anyio.CancelScope(shield=True):
            if self._process.stdin is not None:
                await self._process.stdin.aclose()
            with anyio.move_on_after(ceil(self.command.patience + _MARGIN)):
                await self._process.wait()
            if self.exit_code is None:
                self._process.kill()
                await self._process.wait()
            await self._process.aclose()

"""What the embedded servers have in common: a port, a folder, a guarded process, and the wait until it answers."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Self

import anyio

from outbox_core.embedded.guarded import Command, Guarded
from outbox_core.embedded.ports import take_port
from outbox_core.errors import EmbeddedServerError

if TYPE_CHECKING:
    from outbox_core.embedded.account import Account

START_TIMEOUT: Final = 30.0
_PAUSE: Final = 0.03


class EmbeddedServer(ABC):
    """An asynchronous context manager around a server on 127.0.0.1, which answers when the block begins.

    ``port`` 0 takes a free one. Without ``data`` the server's data is in a temporary folder that goes with it. It is
    ended within seconds when the block ends, and also when this process dies, however it dies.
    """

    name: ClassVar[str]

    def __init__(self, *, port: int = 0, data: str | Path | None = None) -> None:
        self.port = port
        self._data = None if data is None else Path(data).expanduser().resolve()
        self._folder: Path | None = None
        self._guarded: Guarded | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """What a client connects to."""

    @abstractmethod
    async def _command(self, folder: Path, *, kept: bool) -> Command:
        """What to start, with its data in ``folder``, which is ``kept`` or goes with the server."""

    @abstractmethod
    async def _answers(self) -> bool:
        """Whether the server takes a request and answers it."""

    def _account(self) -> Account | None:
        return None

    async def __aenter__(self) -> Self:
        if os.name != "posix":
            raise EmbeddedServerError(
                self.name, "embedded servers run on Linux and macOS; use a server of your own instead"
            )
        self.port = take_port(self.name, self.port)
        self._folder = self._data or Path(tempfile.mkdtemp(prefix=f"outbox-{self.name.lower()}-"))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if (account := self._account()) is not None:
                account.own(self._folder)
            self._guarded = await Guarded.start(
                await self._command(self._folder, kept=self._data is not None)
            )
            await self._until_ready(self._guarded)
        except OSError as error:
            await self._end()
            raise EmbeddedServerError(
                self.name, f"its folder {self._folder} cannot be used: {error}"
            ) from error
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    @property
    def folder(self) -> Path:
        """Where its data and its log are while it runs."""
        return self._running().command.folder

    async def freeze(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stay open, and nobody answers until `thaw`."""
        await self._running().send(signal.SIGSTOP)

    async def thaw(self) -> None:
        """Let it go on where it stood."""
        await self._running().send(signal.SIGCONT)

    async def watch(self) -> None:
        """Wait for as long as it runs; `EmbeddedServerError`, with the tail of its log, when it has ended by itself."""
        guarded = self._running()
        await guarded.wait()
        guarded.check()

    def _running(self) -> Guarded:
        if self._guarded is None:
            raise EmbeddedServerError(self.name, "it does not run: enter it with `async with` first")
        return self._guarded

    async def _until_ready(self, guarded: Guarded) -> None:
        with anyio.move_on_after(START_TIMEOUT):
            while True:
                guarded.check()
                if await self._answers():
                    return
                await anyio.sleep(_PAUSE)
        raise EmbeddedServerError(
            self.name, f"it did not answer within {START_TIMEOUT:g} s; its last lines:\n{guarded.log_tail()}"
        )

    async def _end(self) -> None:
        guarded, self._guarded = self._guarded, None
        if guarded is not None:
            await guarded.stop()
        if self._data is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

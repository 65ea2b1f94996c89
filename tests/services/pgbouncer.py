"""PgBouncer in transaction mode, in front of a PostgreSQL server."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.services.account import Account, unprivileged
from tests.services.own_loop import run_async
from tests.services.postgres import PostgresServer
from tests.services.provision import debian_package
from tests.services.run import Command, Run
from tests.services.server import Server
from tests.services.sources import Candidate, Foreign, Installation, Source


class PgBouncer(Server):
    """The address is the URL of the upstream's database through the pooler; `dsn` gives those of others."""

    name = "PgBouncer"
    start_timeout_s = 15.0
    stop_signal = signal.SIGINT
    not_ready = (psycopg.Error, OSError)
    hint = "run `apt-get install pgbouncer`"

    def __init__(
        self,
        run: Run,
        origin: Installation | Foreign,
        *,
        upstream: PostgresServer,
        private: bool = True,
        extra_config: str = "",
    ) -> None:
        super().__init__(run, origin, private=private, extra_config=extra_config)
        self._upstream = upstream

    @classmethod
    def candidates(cls) -> list[Candidate]:
        return [Candidate(Source.BINARY, _from_debian)]

    @property
    def account(self) -> Account | None:
        return unprivileged()

    def own_address(self) -> str:
        return self.dsn(urlsplit(self._upstream.address).path.removeprefix("/"))

    def dsn(self, database: str) -> str:
        """The address of one of the upstream's databases through the pooler."""
        user = urlsplit(self._upstream.address).username or "postgres"
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def prepare(self) -> None:
        upstream = urlsplit(self._upstream.address)
        target = (
            f"host={upstream.hostname} port={upstream.port or 5432} user={upstream.username or 'postgres'}"
        )
        if upstream.password:
            target += f" password={upstream.password}"
        settings = f"""\
[databases]
* = {target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
"""
        self._config.write_text(settings + self.extra_config)

    def commands(self) -> Sequence[Command]:
        server = Command(
            name="pgbouncer",
            port=self.port,
            arguments=[self.installed_in / "pgbouncer", self._config],
            folder=self.folder,
            log=self.log,
            account=self.account,
        )
        return [server]

    def round_trip(self, *, timeout_s: float) -> str:
        async def write_and_read() -> None:
            async with await psycopg.AsyncConnection.connect(
                self.address, prepare_threshold=None
            ) as connection:
                await connection.execute("SELECT pg_current_xact_id()")

        run_async(write_and_read, timeout_s=timeout_s)
        return _version(self.installed_in / "pgbouncer")

    @property
    def _config(self) -> Path:
        return self.folder / "pgbouncer.ini"


def _from_debian() -> Path | None:
    program = _which()
    if program is None and shutil.which("apt-get") is not None:
        debian_package("pgbouncer")
        program = _which()
    return None if program is None else Path(program).parent


def _which() -> str | None:
    # Debian installs it to /usr/sbin, which is not on everybody's PATH.
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def _version(program: Path) -> str:
    completed = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True)
    return completed.stdout.split()[1]

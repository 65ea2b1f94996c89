"""A stand-by that follows another PostgreSQL of ours until it is promoted."""

from __future__ import annotations

import shutil

import psycopg

from tests.services.own_loop import run_async
from tests.services.postgres import PostgresServer
from tests.services.run import Run
from tests.services.sources import Foreign, Installation

PROMOTION_SECONDS = 20
_STREAMING = "SELECT current_setting('server_version') FROM pg_stat_wal_receiver WHERE status = 'streaming'"


class StandbyServer(PostgresServer):
    """Begins with a copy of the data of `primary` and is ready once it streams from it.

    It is a process of its own: whatever befalls the primary, it goes on, read-only until `promote`.
    """

    name = "PostgreSQL-standby"

    def __init__(self, run: Run, origin: Installation | Foreign, *, primary: PostgresServer) -> None:
        super().__init__(run, origin, private=True)
        self.primary = primary

    def prepare(self) -> None:
        """The primary is down while its data is copied: not every source of PostgreSQL has pg_basebackup."""
        self.primary.stop()
        shutil.copytree(self.primary.data_folder, self.data_folder)
        with (self.data_folder / "postgresql.conf").open("a") as file:
            file.write(
                f"unix_socket_directories = '{self.socket_folder}'\n"
                f"primary_conninfo = 'host=127.0.0.1 port={self.primary.port} user=postgres'\n"
            )
        (self.data_folder / "standby.signal").touch()
        if account := self.account:
            for path in (self.data_folder, *self.data_folder.rglob("*")):
                shutil.chown(path, account.user, account.group)
        self.primary.start()

    def round_trip(self, *, timeout_s: float) -> str:
        async def follow() -> str:
            async with await psycopg.AsyncConnection.connect(self.address) as connection:
                row = await (await connection.execute(_STREAMING)).fetchone()
                if row is None:
                    raise psycopg.OperationalError("it does not stream from its primary")
                return str(row[0])

        return run_async(follow, timeout_s=timeout_s)

    def promote(self) -> None:
        """Make it a primary, and return once it takes writes."""
        with psycopg.connect(self.address, autocommit=True, connect_timeout=10) as connection:
            row = connection.execute("SELECT pg_promote(true, %s)", [PROMOTION_SECONDS]).fetchone()
        assert row == (True,), f"not promoted within {PROMOTION_SECONDS} s\n{self.log_tail()}"

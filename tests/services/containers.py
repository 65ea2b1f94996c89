"""The last resort: a container, when a Docker engine answers.

Containers are addressed like servers from the environment: they are shared, and not for breaking. Should the run die,
testcontainers' own reaper removes them.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.services.sources import Foreign, Source, Unavailable

_PROBE_TIMEOUT_S = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What to ask of the engine; `{port}` in the values stands for the port on this machine."""

    image: str
    inner_port: str
    address: str
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str = ""


def postgres(major: int) -> Foreign | None:
    return _start(
        Container(
            image=f"postgres:{major}",
            inner_port="5432",
            address="postgresql://postgres@127.0.0.1:{port}/postgres",
            environment={"POSTGRES_HOST_AUTH_METHOD": "trust"},
            command="-c max_connections=200 -c max_prepared_transactions=10 -c fsync=off",
        )
    )


def kafka() -> Foreign | None:
    return _start(
        Container(
            image="apache/kafka:4.1.0",
            inner_port="{port}",
            address="127.0.0.1:{port}",
            environment={
                "KAFKA_NODE_ID": "1",
                "KAFKA_PROCESS_ROLES": "broker,controller",
                "KAFKA_LISTENERS": "PLAINTEXT://:{port},CONTROLLER://:19093",
                "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://127.0.0.1:{port}",
                "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:19093",
                "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
                "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
                "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
                "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
                "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
            },
        )
    )


def nats() -> Foreign | None:
    return _start(
        Container(image="nats:2", inner_port="4222", address="nats://127.0.0.1:{port}", command="-js")
    )


def rabbitmq() -> Foreign | None:
    return _start(
        Container(image="rabbitmq:3", inner_port="5672", address="amqp://guest:guest@127.0.0.1:{port}/")
    )


def engine_answers(ping: Callable[[], object] | None = None) -> bool:
    """Whether a Docker engine answers, within a few seconds. `ping` fails when it does not."""
    try:
        (ping or _ping)()
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _ping() -> None:
    # In a process of its own: without an engine the client leaves a socket open.
    script = f"import docker; docker.from_env(timeout={_PROBE_TIMEOUT_S}).ping()"
    subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=20, check=True)


def _start(container: Container) -> Foreign | None:
    if not engine_answers():
        return None
    port = _free_port()

    def filled(value: str) -> str:
        return value.format(port=port)

    with warnings.catch_warnings():
        # What testcontainers deprecates in itself is not ours to mend.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            from testcontainers.core.container import DockerContainer
        except ModuleNotFoundError as error:
            raise Unavailable(f"{error}: run `pip install testcontainers`") from error
        running: Any = DockerContainer(container.image).with_bind_ports(
            int(filled(container.inner_port)), port
        )
        for name, value in container.environment.items():
            running.with_env(name, filled(value))
        if container.command:
            running.with_command(container.command)
        running.start()
    return Foreign(Source.DOCKER, filled(container.address), running.stop)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

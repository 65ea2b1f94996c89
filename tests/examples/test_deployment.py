"""The compose file, the manifest and the image of `examples/relay_process` agree with the command and its settings."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx
import pytest
import yaml

from outbox_core.cli.root import root
from outbox_core.config import VARIABLES, Settings
from outbox_core.integrations.http import health_routes
from tests.examples.running import EXAMPLES, ROOT, background, free_port, succeed
from tests.services.nats import NatsServer
from tests.services.postgres import Database

FOLDER = EXAMPLES / "relay_process"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
MANIFEST = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
POD = next(each for each in MANIFEST if each["kind"] == "Deployment")["spec"]["template"]
OUTBOX = str(Path(sys.executable).with_name("outbox"))
OURS = {variable.name for variable in VARIABLES}


@dataclass(frozen=True)
class Container:
    where: str
    image: str
    command: list[str]
    env: dict[str, str]


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in MANIFEST if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def pod_environment(container: Mapping[str, Any]) -> dict[str, str]:
    """As the kubelet puts it together, from the objects of the manifest."""
    env: dict[str, str] = {}
    for source in container.get("envFrom", []):
        env |= named("ConfigMap", source["configMapRef"]["name"])["data"]
    for each in container["env"]:
        reference = each["valueFrom"]["secretKeyRef"]
        env[each["name"]] = named("Secret", reference["name"])["stringData"][reference["key"]]
    return env


def containers() -> list[Container]:
    of_pod = [*POD["spec"]["initContainers"], *POD["spec"]["containers"]]
    return [
        Container(f"kubernetes {each['name']}", each["image"], each["command"], pod_environment(each))
        for each in of_pod
    ] + [
        Container(f"compose {name}", service["image"], service["command"], service["environment"])
        for name, service in COMPOSE["services"].items()
        if "build" in service
    ]


CONTAINERS = {container.where: container for container in containers()}
RELAYS = [container for container in CONTAINERS.values() if container.command == ["outbox", "relay"]]


def test_everything_of_ours_is_looked_at() -> None:
    assert set(CONTAINERS) == {
        "kubernetes schema",
        "kubernetes relay",
        "compose schema",
        "compose relay",
        "compose service",
    }
    assert [relay.where for relay in RELAYS] == ["kubernetes relay", "compose relay"]


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=list(CONTAINERS))
def test_a_command_is_one_there_is(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in container.env.items():
        assert isinstance(value, str), f"{name} is {value!r}: quote it"
        monkeypatch.setenv(name, value)
    if container.command[0] == "python":
        _, option, module = container.command
        assert (option, (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()) == ("-m", True)
        return
    program, *arguments = container.command
    assert program == "outbox"
    command: click.Command = root
    while isinstance(command, click.Group):
        _, found, arguments = command.resolve_command(click.Context(command), arguments)
        assert found is not None
        command = found
    command.make_context("outbox", arguments)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=list(CONTAINERS))
def test_every_setting_is_one_there_is(container: Container) -> None:
    ours = {name for name in container.env if name.startswith(("OUTBOX_", "PROMETHEUS_"))}
    assert "OUTBOX_DATABASE_URL" in ours <= OURS
    Settings.from_env(container.env)


@pytest.mark.parametrize("relay", RELAYS, ids=lambda relay: relay.where)
def test_a_relay_delivers_the_table_that_is_made(relay: Container) -> None:
    settings = Settings.from_env(relay.env)
    kind, _ = relay.where.split()
    assert CONTAINERS[f"{kind} schema"].command[-2:] == ["--table", relay.env["OUTBOX_RELAY_TABLES"]]
    assert settings.make_relay() is not None
    assert settings.metrics.host == "0.0.0.0"  # noqa: S104 - probes come from outside


def paths() -> set[str]:
    relay = Settings.from_env(CONTAINERS["kubernetes relay"].env).make_relay()
    assert relay is not None
    return set(health_routes(relay))


def test_the_probes_ask_what_is_served() -> None:
    relay = POD["spec"]["containers"][0]
    metrics = Settings.from_env(CONTAINERS["kubernetes relay"].env).metrics
    ports = {port["name"]: port["containerPort"] for port in relay["ports"]}
    for probe, path in (("livenessProbe", "/healthz/live"), ("readinessProbe", "/healthz/ready")):
        asked = relay[probe]["httpGet"]
        assert asked["path"] == path in paths()
        assert ports[asked["port"]] == metrics.port
    scraped = POD["metadata"]["annotations"]
    assert scraped["prometheus.io/port"] == str(metrics.port)
    assert scraped["prometheus.io/path"] == metrics.path

    check = " ".join(COMPOSE["services"]["relay"]["healthcheck"]["test"])
    (url,) = re.findall(r'http://[^"]+', check)
    assert urlsplit(url).path in paths()
    assert urlsplit(url).port == Settings.from_env(CONTAINERS["compose relay"].env).metrics.port


def test_nobody_is_killed_within_its_grace() -> None:
    grace = Settings.from_env(CONTAINERS["kubernetes relay"].env).relay_grace
    assert POD["spec"]["terminationGracePeriodSeconds"] > grace + 1
    grace = Settings.from_env(CONTAINERS["compose relay"].env).relay_grace
    (seconds,) = re.fullmatch(r"(\d+)s", COMPOSE["services"]["relay"]["stop_grace_period"]).groups()
    assert int(seconds) > grace + 1


def test_the_objects_of_the_manifest_fit_together() -> None:
    labels = POD["metadata"]["labels"]
    (deployment,) = (each for each in MANIFEST if each["kind"] == "Deployment")
    (budget,) = (each for each in MANIFEST if each["kind"] == "PodDisruptionBudget")
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    assert len({each.image.rpartition("/")[2] for each in CONTAINERS.values()}) == 1


def test_services_wait_for_services_there_are() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        if "build" in service:
            context = (FOLDER / service["build"]["context"]).resolve()
            assert (context / service["build"]["dockerfile"]).resolve() == FOLDER / "Dockerfile"


def test_the_image_has_what_it_runs() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text()
    copied = [
        source for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE) for source in line.split()
    ]
    assert {"outbox_core", "examples"} <= set(copied)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', dockerfile)
    assert {"cli", "prometheus"} <= set(extras.split(",")) <= set(project["optional-dependencies"])
    (command,) = re.findall(r"^CMD (.+)$", dockerfile, re.MULTILINE)
    assert yaml.safe_load(command) == CONTAINERS["compose relay"].command


@pytest.mark.timeout(120)
def test_the_relay_of_the_manifest_runs(database: Database, nats_server: NatsServer, tmp_path: Path) -> None:
    """Its own command and settings, at other addresses; asked what its probes ask, and stopped as it would be."""
    port = free_port()
    addresses = {
        "OUTBOX_DATABASE_URL": database.dsn,
        "OUTBOX_RELAY_TO": nats_server.address,
        "OUTBOX_METRICS_HOST": "127.0.0.1",
        "OUTBOX_METRICS_PORT": str(port),
    }
    schema, relay = CONTAINERS["kubernetes schema"], CONTAINERS["kubernetes relay"]
    succeed(OUTBOX, *schema.command[1:], addresses=schema.env | addresses)
    with background([OUTBOX, *relay.command[1:]], relay.env | addresses, tmp_path / "log") as running:
        for probe in ("livenessProbe", "readinessProbe"):
            path = POD["spec"]["containers"][0][probe]["httpGet"]["path"]
            running.until(lambda path=path: answers(f"http://127.0.0.1:{port}{path}"))
        assert running.stop(within=POD["spec"]["terminationGracePeriodSeconds"]) == 0, running.log()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False

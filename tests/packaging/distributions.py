"""What is in a built wheel and sdist, and how one is installed by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

EXPECTED_ENTRY_POINTS: dict[str, dict[str, str]] = {
    "outbox-core": {},
    "outbox-kafka": {
        "kafka": "outbox_kafka:KafkaDispatcher.from_url",
        "kafka+ssl": "outbox_kafka:KafkaDispatcher.from_url",
    },
    "outbox-nats": {
        "nats": "outbox_nats:NatsDispatcher.from_url",
        "nats+tls": "outbox_nats:NatsDispatcher.from_url",
    },
    "outbox-amqp": {
        "amqp": "outbox_amqp:AmqpDispatcher.from_url",
        "amqps": "outbox_amqp:AmqpDispatcher.from_url",
    },
}
"""What each distribution declares in the group ``outbox.dispatchers``: URL scheme to object."""

IMPORT_NAMES = {name: name.replace("-", "_") for name in EXPECTED_ENTRY_POINTS}

INSTALL_SECONDS = 180
RUN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Built:
    """One distribution as it would be published."""

    wheel: Path
    sdist: Path

    @property
    def wheel_files(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    @property
    def sdist_files(self) -> set[str]:
        """Paths inside the archive's single top folder."""
        with tarfile.open(self.sdist) as archive:
            return {name.partition("/")[2] for name in archive.getnames()}

    @property
    def metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as archive:
            (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return Parser().parsestr(archive.read(path).decode())


def find_built(folder: Path) -> dict[str, Built]:
    """The four distributions in a folder that must hold nothing else."""
    built = {}
    for name, import_name in IMPORT_NAMES.items():
        (wheel,) = folder.glob(f"{import_name}-*.whl")
        (sdist,) = folder.glob(f"{import_name}-*.tar.gz")
        built[name] = Built(wheel, sdist)
    expected = {path.name for one in built.values() for path in (one.wheel, one.sdist)} | {".gitignore"}
    stray = {path.name for path in folder.iterdir()} - expected
    if stray:
        raise AssertionError(f"unexpected files beside the distributions: {sorted(stray)}")
    return built


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of its own, and a working folder from which the repository cannot be imported."""

    python: Path
    folder: Path

    @classmethod
    def create(cls, root: Path) -> Environment:
        folder = root / "work"
        folder.mkdir()
        location = root / "environment"
        _run(["uv", "venv", "--quiet", "--python", sys.executable, str(location)], folder, INSTALL_SECONDS)
        return cls(location / "bin" / "python", folder)

    def install(self, *arguments: str | Path) -> None:
        command = ["uv", "pip", "install", "--quiet", "--python", str(self.python), *map(str, arguments)]
        _run(command, self.folder, INSTALL_SECONDS)

    def installed(self) -> set[str]:
        """The names of the distributions in this environment."""
        listed = _run(
            ["uv", "pip", "list", "--quiet", "--format=json", "--python", str(self.python)],
            self.folder,
            RUN_SECONDS,
        )
        return {package["name"] for package in json.loads(listed)}

    def run(self, *arguments: str) -> str:
        """What Python printed; failing with all of its output when it did not end well."""
        return _run([str(self.python), *arguments], self.folder, RUN_SECONDS)


def _run(command: list[str], folder: Path, seconds: int) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout

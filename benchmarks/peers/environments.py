"""The peers' environments: made once with the versions of ``peers.toml``, kept in the cache beside the servers."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.services.provision import cached
from tests.services.sources import Unavailable

_PINNED = Path(__file__).parent / "peers.toml"
_INSTALL_SECONDS = 600.0


@dataclass(frozen=True, eq=False)
class Peer:
    """A library beside which the relay is measured."""

    name: str
    requirements: list[str]
    share: float
    settings: dict[str, Any]
    tried: list[dict[str, Any]]
    promises: str
    differs: str

    @property
    def module(self) -> str:
        return f"benchmarks.peers.{self.slug}"

    @property
    def slug(self) -> str:
        return self.name.replace("-", "_")

    @property
    def version(self) -> str:
        return self.requirements[0].partition("==")[2]


def peers() -> list[Peer]:
    """Every peer, as ``peers.toml`` has it."""
    with _PINNED.open("rb") as file:
        return [Peer(name, **entry) for name, entry in tomllib.load(file).items()]


def python(peer: Peer) -> Path:
    """The interpreter of a peer's environment, made if it is not there. Raises `Unavailable` when it cannot be made."""
    digest = hashlib.sha256("\n".join(peer.requirements).encode()).hexdigest()[:12]
    key = f"peer-{peer.slug}-{peer.version}-py{sys.version_info.major}.{sys.version_info.minor}-{digest}"
    return cached(key, partial(_make, peer)) / "bin" / "python"


def _make(peer: Peer, folder: Path) -> None:
    """With uv where it is at hand, for it is many times quicker."""
    program = str(folder / "bin" / "python")
    uv = _uv()
    if uv:
        _run([*uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)], peer)
        _run([*uv, "pip", "install", "--quiet", "--python", program, *peer.requirements], peer)
    else:
        _run([sys.executable, "-m", "venv", str(folder)], peer)
        _run([program, "-m", "pip", "install", "--quiet", *peer.requirements], peer)


def _uv() -> list[str]:
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    return [] if found is None else [found]


def _run(command: list[str], peer: Peer) -> None:
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"installing {peer.name} took longer than {_INSTALL_SECONDS:.0f} s") from None
    if completed.returncode != 0:
        raise Unavailable(f"{peer.name} cannot be installed: {completed.stderr.strip()[-400:]}")

"""Programs that are not there yet: a cache shared by every clone on the machine, Maven Central and apt."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.services.sources import Unavailable

_TIMEOUT_S = 600.0


def cache_folder() -> Path:
    """`OUTBOX_TEST_CACHE`, else /var/cache/outbox-tests for root, else outbox-tests in the user's cache folder."""
    if chosen := os.environ.get("OUTBOX_TEST_CACHE"):
        folder = Path(chosen)
    elif os.getuid() == 0:
        folder = Path("/var/cache/outbox-tests")
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outbox-tests"
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
    return folder


def cached(key: str, fill: Callable[[Path], None], *, cache: Path | None = None) -> Path:
    """The cache's folder `key`, filled once by `fill`; the key names the version, so an entry is never out of date.

    Runs that need it at the same time wait for the one that fills it. The entry appears whole or not at all.
    """
    cache = cache_folder() if cache is None else cache
    entry = cache / key
    if entry.exists():
        return entry
    with lock(cache / f"{key}.lock"):
        if not entry.exists():
            scratch = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=cache))
            try:
                fill(scratch)
                _open_to_everyone(scratch)
                scratch.rename(entry)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return entry


@contextlib.contextmanager
def lock(path: Path, *, timeout_s: float = _TIMEOUT_S) -> Iterator[None]:
    """Hold an advisory lock between processes; the kernel releases it when the holder dies."""
    deadline = time.monotonic() + timeout_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Unavailable(f"{path} was held by another run for {timeout_s:.0f} s") from None
                time.sleep(0.1)
            else:
                break
        yield


def maven(goal: str, folder: Path, *options: str) -> None:
    """Run a goal of Maven's dependency plugin in `folder`."""
    program = shutil.which("mvn")
    if program is None:
        raise Unavailable("mvn is not installed")
    _run(
        [program, "-q", "-B", f"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:{goal}", *options],
        folder,
    )


def debian_package(package: str) -> None:
    """Install a Debian package, as root or through a sudo that asks nothing."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise Unavailable("apt-get is not there")
    sudo: list[str] = []
    if os.getuid() != 0:
        if shutil.which("sudo") is None:
            raise Unavailable(f"installing {package} needs root")
        sudo = ["sudo", "-n"]
    wait = ["-o", "DPkg::Lock::Timeout=120"]
    with lock(cache_folder() / "apt.lock"):
        _run([*sudo, apt, *wait, "update"], Path("/"))
        _run([*sudo, apt, *wait, "install", "-y", "--no-install-recommends", package], Path("/"))


def unpacked_package(package: str) -> Path:
    """The content of a Debian package in the cache: nothing is installed or started, and no root is needed."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        raise Unavailable("apt-get and dpkg-deb are not there")

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as download:
            _run([apt, "-o", "APT::Sandbox::User=root", "download", package], Path(download))
            for archive in Path(download).glob("*.deb"):
                _run([dpkg, "-x", str(archive), str(folder)], Path(download))

    return cached(f"debian-{package}", fill)


def _run(command: Sequence[str], folder: Path) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        completed = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)!r} took longer than {_TIMEOUT_S:.0f} s") from None
    if completed.returncode != 0:
        raise Unavailable(f"{' '.join(command)!r} failed: {completed.stdout.strip()[-300:]}")


def _open_to_everyone(folder: Path) -> None:
    """Let other accounts read and traverse: PostgreSQL does not run as root."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))

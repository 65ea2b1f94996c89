"""A copy of the repository to break, and what makes a Python work on it instead of the original."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.mutation import Mutation

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: Mapping[str, str] = {
    "outbox_core": "",
    "outbox_kafka": "outbox_adapters/kafka",
    "outbox_nats": "outbox_adapters/nats",
    "outbox_amqp": "outbox_adapters/amqp",
    "tests": "",
}
_WHERE = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]), sep='\\n')"


@dataclass(frozen=True, slots=True)
class Tree:
    """The copy. Whoever runs a Python with `environment` imports from it, and so do the processes that one starts."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        places = dict.fromkeys(str(self.root / folder) for folder in PACKAGES.values())
        return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}

    def check_imports(self) -> None:
        """Import every package in a process of its own, from elsewhere: all must come from the copy."""
        completed = subprocess.run(
            [sys.executable, "-c", _WHERE, *PACKAGES],
            cwd=self.root.parent,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        for file in completed.stdout.splitlines():
            if not Path(file).is_relative_to(self.root):
                raise RuntimeError(f"{file} is imported instead of its copy below {self.root}")

    @contextmanager
    def broken_by(self, mutation: Mutation) -> Iterator[None]:
        """The copy with one mutation, whole again at the end. Raises `DoesNotApply`."""
        path = self.root / mutation.file
        broken, whole = mutation.checked_in(self.root), path.read_text(encoding="utf-8")
        _write(path, broken)
        try:
            yield
        finally:
            _write(path, whole)


@contextmanager
def copied(root: Path = ROOT) -> Iterator[Tree]:
    """A copy of what git knows or would take in, as it is in the working tree; gone at the end."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        timeout=60,
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="outbox-mutations-") as folder:
        target = Path(folder) / "tree"
        for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
            if (root / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, target / name)
        yield Tree(target.resolve())


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".py":
        # What is compiled counts as current while size and second of the source are the same.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

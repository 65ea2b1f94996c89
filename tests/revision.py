"""Which state of this repository something was made at."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
UNKNOWN = "unknown"
_GIT_SECONDS = 10
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit, and whether files that git knows differed from it; None when there is no git to ask."""

    commit: str = UNKNOWN
    dirty: bool | None = None

    def __str__(self) -> str:
        return f"{self.commit}+" if self.dirty else self.commit

    def until(self, later: Revision) -> Revision:
        """Of what began here and ended at another: unless nothing changed meanwhile, it is not this commit's alone."""
        return self if self == later or self.dirty is None else Revision(self.commit, True)


def at_commit(saved: Mapping[str, Any]) -> str:
    """What a saved run was made of. Runs from before this was recorded do not say."""
    commit, dirty = saved.get("commit", UNKNOWN), saved.get("dirty")
    if commit == UNKNOWN:
        return "at a commit that was not recorded"
    return f"at commit `{commit}`" + " with changes that were not committed" * bool(dirty)


def revision(root: Path = ROOT) -> Revision:
    """That of a working tree as it is now; unknown of one that is no repository of its own."""
    try:
        top, _, head = _git(root, "rev-parse", "--show-toplevel", f"--short={_DIGITS}", "HEAD").partition(
            "\n"
        )
        if Path(top) != root.resolve():
            return Revision()
        return Revision(head, bool(_git(root, "status", "--porcelain", "-uno")))
    except (OSError, subprocess.SubprocessError):
        return Revision()


@dataclass(frozen=True, slots=True)
class Change:
    """A file, by its path from the root, and when it was written."""

    file: str
    at: float


def last_changed(root: Path = ROOT) -> Change:
    """Of all that the product and its tests are made of, what was changed last."""
    files = (
        path
        for folder in ("outbox_core", "outbox_adapters", "tests")
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".sql", ".c") and ".venv" not in path.parts
    )
    return max(
        (Change(str(path.relative_to(root)), path.stat().st_mtime) for path in files), key=lambda c: c.at
    )


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
    ).stdout.strip()

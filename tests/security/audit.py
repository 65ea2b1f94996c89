"""Ask for known vulnerabilities of pinned requirements, and say honestly when nobody could be asked.

    python -m tests.security.audit requirements.txt

``pip-audit`` calls a package that its database does not know "skipped" and ends well: behind a mirror that serves
packages and no advisories, it finds nothing wrong with anything. Ends with 0 when every package was looked up and none
has a known vulnerability, 1 when one has, 2 when pip-audit itself failed, and 3 when some could not be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

_PATIENCE = 600.0


class Verdict(IntEnum):
    """The exit code."""

    CLEAN = 0
    VULNERABLE = 1
    FAILED = 2
    NOT_AUDITED = 3


@dataclass(frozen=True)
class Audit:
    """What the database said about each package."""

    known_good: tuple[str, ...]
    vulnerable: tuple[str, ...]
    not_audited: tuple[str, ...]

    @classmethod
    def read(cls, report: str) -> Audit:
        """What ``pip-audit --format json`` wrote."""
        good: list[str] = []
        vulnerable: list[str] = []
        unknown: list[str] = []
        packages: list[dict[str, Any]] = json.loads(report)["dependencies"]
        for package in packages:
            if "skip_reason" in package:
                unknown.append(package["name"])
            elif package["vulns"]:
                ids = ", ".join(found["id"] for found in package["vulns"])
                vulnerable.append(f"{package['name']} {package['version']}: {ids}")
            else:
                good.append(package["name"])
        return cls(tuple(good), tuple(vulnerable), tuple(unknown))

    @property
    def verdict(self) -> Verdict:
        if self.vulnerable:
            return Verdict.VULNERABLE
        return Verdict.NOT_AUDITED if self.not_audited or not self.known_good else Verdict.CLEAN

    def __str__(self) -> str:
        lines = [f"vulnerable: {each}" for each in self.vulnerable]
        lines.append(f"{len(self.known_good)} packages have no known vulnerability")
        if not self.known_good and not self.vulnerable:
            lines.append(
                "NO VULNERABILITY DATABASE COULD BE REACHED: nothing was audited, which is no good news"
            )
        elif self.not_audited:
            lines.append(f"not audited, unknown to the database: {', '.join(self.not_audited)}")
        return "\n".join(lines)


def audited(requirements: Path) -> Audit | None:
    """Ask for every package of a file of pinned requirements; None when pip-audit gave no report."""
    asked = subprocess.run(
        [
            *(sys.executable, "-m", "pip_audit", "--requirement", str(requirements)),
            *("--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json"),
        ],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    try:
        return Audit.read(asked.stdout)
    except (ValueError, KeyError, TypeError):
        return unreported(asked.stderr)


def unreported(said: str) -> Audit | None:
    """What no report means: nobody was reached, or pip-audit itself failed."""
    reason = (said.strip().splitlines() or ["no reason"])[-1]
    print(f"pip-audit gave no report: {reason}")
    return Audit((), (), ()) if reason.startswith("requests.exceptions.") else None


def main(args: Sequence[str]) -> Verdict:
    if len(args) != 1 or not Path(args[0]).is_file():
        print("which requirements? name one file of them: python -m tests.security.audit FILE")
        return Verdict.FAILED
    audit = audited(Path(args[0]))
    if audit is None:
        return Verdict.FAILED
    print(audit)
    return audit.verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

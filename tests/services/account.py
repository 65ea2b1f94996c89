"""The unprivileged account for servers that refuse to run as root."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Account:
    user: int
    group: int


def unprivileged() -> Account | None:
    """`postgres` if that account exists, else `nobody`; None when the current user is not root and will do."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(user=entry.pw_uid, group=entry.pw_gid)
    raise RuntimeError(
        "running as root, and there is neither a postgres nor a nobody account to start servers as"
    )


def can_run(program: Path, account: Account | None) -> bool:
    """Whether the account can reach and execute a program that understands --version."""
    try:
        completed = subprocess.run(
            [program, "--version"],
            cwd="/",
            capture_output=True,
            timeout=30,
            check=False,
            user=None if account is None else account.user,
            group=None if account is None else account.group,
            extra_groups=None if account is None else [],
        )
    except PermissionError:
        return False
    return completed.returncode == 0

"""The account for servers that refuse to run as root."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import anyio

from outbox_core.errors import EmbeddedServerError

_ACCOUNTS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers of a user and a group."""

    user: int
    group: int

    def own(self, folder: Path) -> None:
        """Give a folder to the account."""
        os.chown(folder, self.user, self.group)


def unprivileged(server: str) -> Account | None:
    """None when the current user will do, because it is not root; otherwise ``postgres``, or else ``nobody``."""
    if os.getuid() != 0:
        return None
    import pwd

    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedServerError(
        server,
        "it refuses to run as root, and there is no account postgres or nobody to run it as; use another user",
    )


async def can_run(program: Path, account: Account | None) -> bool:
    """Whether the account reaches a program, which a folder such as /root keeps it from."""
    if account is None:
        return True
    try:
        with anyio.fail_after(20):
            done = await anyio.run_process(
                [program, "--version"],
                cwd="/",
                check=False,
                user=account.user,
                group=account.group,
                extra_groups=[],
            )
    except OSError:
        return False
    return done.returncode == 0

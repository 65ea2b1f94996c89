"""Asking before rows are changed: what, how many, and why."""

from __future__ import annotations

import getpass
import socket
import sys

import click

from outbox_core.cli.failures import Declined


def can_ask() -> bool:
    """Whether somebody sits at both ends: a question is shown on standard error and answered on standard input."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(action: str, *, yes: bool) -> None:
    """Ask whether ``action`` (such as "delete 12 messages of public.orders_outbox") is to be done.

    The caller has shown what would change. Raises `Declined` for anything but yes, and UsageError where nobody can be
    asked and ``--yes`` was not given.
    """
    if yes:
        return
    if not can_ask():
        raise click.UsageError(
            f"nobody can be asked whether to {action}, because this is not a terminal; give --yes to insist",
            ctx=click.get_current_context(silent=True),
        )
    if not click.confirm(f"{action[0].upper()}{action[1:]}?", err=True):
        raise Declined


def asked_reason(given: str | None) -> str:
    """The reason for the record: as given, or asked for on a terminal."""
    if given is not None and given.strip():
        return given.strip()
    if given is None and can_ask():
        answer: str = click.prompt("Why (for the record)", err=True)
        return answer.strip()
    raise click.UsageError(
        "a change of messages needs --reason, which is put on record",
        ctx=click.get_current_context(silent=True),
    )


def actor_of(given: str | None) -> str:
    """Who is put on record: as given, or ``user@host`` of this process."""
    if given is not None and given.strip():
        return given.strip()
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"

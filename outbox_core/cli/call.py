"""What one run of the command knows about itself, beside its arguments."""

from __future__ import annotations

from dataclasses import dataclass

import click


@dataclass(slots=True)
class Call:
    """Made for each run and handed to every command as ``ctx.obj``."""

    debug: bool = False
    database: str = ""
    """The database URL without its secrets, once a command has been given one."""


def current() -> Call:
    """The run that the calling command belongs to."""
    call = click.get_current_context().find_object(Call)
    return Call() if call is None else call

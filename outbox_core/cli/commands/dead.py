"""``outbox dead``: see dead messages, replay or discard them, and put right what else holds messages up."""

from __future__ import annotations

import click

from outbox_core.cli import options
from outbox_core.cli.commands.dead_changing import discard, replay, resume
from outbox_core.cli.commands.dead_held import postpone, release
from outbox_core.cli.commands.dead_looking import group, history, show
from outbox_core.cli.commands.dead_looking import listing as list_command


@click.group(short_help="See, replay and discard dead messages; release held ones.")
@options.debug
def dead() -> None:
    """See dead messages, replay or discard them, and put right what else holds messages up.

    A message is dead when its attempts are used up, or when its destination refused it for good. Everything that
    changes messages is put on record: `outbox dead history` shows it.
    """


for _command in (list_command, group, show, replay, discard, resume, release, postpone, history):
    dead.add_command(_command)

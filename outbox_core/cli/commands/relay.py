"""``outbox relay``: deliver the messages of tables, as a process of its own."""

from __future__ import annotations

import os
from typing import Any

import click

from outbox_core.cli import options
from outbox_core.cli.connection import run
from outbox_core.cli.deliveries import Deliveries
from outbox_core.cli.logs import configure
from outbox_core.cli.parameters import note_database
from outbox_core.cli.process import tune_gc
from outbox_core.cli.settings import read_log_settings, read_settings, setting_options, tables_of


@click.command(short_help="Deliver the messages of one or more tables.")
@setting_options
@click.option("--once", is_flag=True, help="Deliver what is due now, and end: for a cron job.")
@options.debug
def relay(once: bool, **given: Any) -> None:
    """Deliver the messages of one or more tables until SIGTERM or SIGINT, and clean up after them.

    Every option can be given in the environment instead. On SIGTERM nothing new is begun, what is in dispatch may end
    within the grace, the rest is given back, and the exit code is 0. The log goes to standard error.

    With --once the exit code is 0 when something was delivered or nothing was due. It is 7 when a destination is away,
    or when none of the messages that were due could be delivered, and 13 when another relay leads a table.
    """
    configure(read_log_settings(os.environ, given))
    settings = read_settings(os.environ, given)
    note_database(settings.database_url)
    if settings.relay_enabled:
        tables_of(settings)
    deliveries = Deliveries(settings)
    tune_gc()
    run(deliveries.once if once else deliveries.until_stopped, fast=True)

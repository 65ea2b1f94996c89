"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from outbox_core.cli.call import current
from outbox_core.cli.parameters import DATABASE, TABLE

F = TypeVar("F", bound=Callable[..., Any])


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    del context, parameter
    if value:
        current().debug = True


debug: Final = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_set_debug,
    help="Show where an error comes from.",
)

database: Final = click.option(
    "--database",
    "-d",
    type=DATABASE,
    envvar="OUTBOX_DATABASE_URL",
    show_envvar=True,
    required=True,
    metavar="URL",
    help="The database, postgresql://user:password@host/name. A password is safer in the variable than here.",
)

table: Final = click.option(
    "--table", "-t", type=TABLE, required=True, help="The outbox table: name, or schema.name."
)

tables: Final = click.option(
    "--table",
    "-t",
    "tables",
    type=TABLE,
    multiple=True,
    envvar="OUTBOX_RELAY_TABLES",
    show_envvar=True,
    help="An outbox table; repeat it for several.",
)

as_json: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")

yes: Final = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask; needed where nobody can be asked, as in a script."
)

reason: Final = click.option("--reason", help="Why, for the record; asked for on a terminal.")

actor: Final = click.option(
    "--actor", help="Who, for the record.  [default: the user and host of this process]"
)


def connected(command: F) -> F:
    """A command that needs the database: ``--database``, ``--debug``."""
    return database(debug(command))


def reading(command: F) -> F:
    """A command that shows something: ``--json`` beside those of `connected`."""
    return as_json(connected(command))


def changing(command: F) -> F:
    """A command that changes rows: ``--yes``, ``--reason``, ``--actor`` and ``--json`` beside those of `connected`."""
    return yes(reason(actor(reading(command))))

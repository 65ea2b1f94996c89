"""Options that select messages, as ``dead`` commands share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import click

from outbox_core.cli.output import shown
from outbox_core.cli.parameters import MOMENT, UUID_VALUE
from outbox_core.errors import ConfigError, InvalidTopicPattern
from outbox_core.letters import Filter

F = TypeVar("F", bound=Callable[..., Any])

_CONDITIONS = (
    click.option("--topic", help="A topic, or a pattern: * is one segment, ** one or more."),
    click.option("--code", help="The error code that last_error begins with, such as PROVIDER.PERMANENT."),
    click.option("--tenant", type=UUID_VALUE, help="This tenant's."),
    click.option("--since", type=MOMENT, help="Those that died then or later: 2026-01-31T08:00Z, or 2h ago."),
    click.option("--until", type=MOMENT, help="Those that died before then."),
    click.option(
        "--event-id", "event_ids", type=UUID_VALUE, multiple=True, help="This one; can be repeated."
    ),
)


def selecting(command: F) -> F:
    """A command that takes ``--topic``, ``--code``, ``--tenant``, ``--since``, ``--until`` and ``--event-id``."""
    for option in reversed(_CONDITIONS):
        command = option(command)
    return command


def selection(
    topic: str | None,
    code: str | None,
    tenant: UUID | None,
    since: datetime | None,
    until: datetime | None,
    event_ids: Sequence[UUID],
    *,
    everything: bool = False,
) -> Filter:
    """The filter that the options make."""
    if since is not None and until is not None and since >= until:
        raise click.UsageError(
            f"--since ({shown(since)}) must be before --until ({shown(until)})",
            ctx=click.get_current_context(silent=True),
        )
    try:
        return Filter(
            topic=topic,
            code=code,
            tenant_id=tenant,
            since=since,
            until=until,
            event_ids=event_ids or None,
            everything=everything,
        )
    except InvalidTopicPattern as error:
        raise click.BadParameter(str(error), param_hint="--topic") from None
    except ConfigError as error:
        raise click.UsageError(str(error), ctx=click.get_current_context(silent=True)) from None


def bounded(wanted: Filter) -> Filter:
    """The filter, if it says which messages are meant."""
    if wanted.bounded or wanted.everything:
        return wanted
    raise click.UsageError(
        "this would change every dead message: say which with --topic, --code, --tenant, --since, --until or"
        " --event-id, or insist with --all",
        ctx=click.get_current_context(silent=True),
    )

"""Plans as files: made by one command, agreed to by somebody, carried out by another."""

from __future__ import annotations

import json
from typing import IO, Any

import click

from outbox_core.dead_letters import Action, Plan
from outbox_core.errors import ConfigError


def read_plan(file: IO[str], action: Action) -> Plan:
    """The plan in a document that ``--dry-run --json`` wrote, if it was made for this very action."""
    try:
        document: Any = json.load(file)
        plan, made_for = Plan.from_json(document["plan"]), Action(document["action"])
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError):
        raise click.BadParameter(
            f"{file.name} is not a plan; `outbox dead replay … --dry-run --json` writes one",
            param_hint="--plan",
        ) from None
    if made_for is not action:
        raise click.UsageError(
            f"this plan was made to {made_for.value}, not to {action.value}: make another with"
            f" `outbox dead {action.value} … --dry-run --json`"
        )
    return plan

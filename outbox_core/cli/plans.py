"""Plans as files: made by one command, agreed to by somebody, carried out by another."""

from __future__ import annotations

import json
from typing import IO, Any

import click

from outbox_core.dead_letters import Plan
from outbox_core.errors import ConfigError


def read_plan(file: IO[str]) -> Plan:
    """The plan in a document that ``--dry-run --json`` wrote."""
    try:
        document: Any = json.load(file)
        return Plan.from_json(document["plan"])
    except (ValueError, KeyError, TypeError, ConfigError):
        raise click.BadParameter(
            f"{file.name} is not a plan; `outbox dead replay … --dry-run --json` writes one",
            param_hint="--plan",
        ) from None

"""``outbox dead`` on the test's own table, and what it says when it refuses."""

from __future__ import annotations

import json

from tests.integration.cli.command import Result, invoke
from tests.integration.cli.sql import TABLE

BECAUSE = ("--yes", "--reason", "mended", "--actor", "ada")


def dead(dsn: str, *args: str, stdin: str = "") -> Result:
    return invoke("dead", *args, "-t", TABLE, database=dsn, stdin=stdin)


def event_id(dsn: str, state: str = "dead") -> str:
    """The first dead, or pending, message."""
    messages = json.loads(invoke("dead", "list", "-t", TABLE, "--json", database=dsn).out)["messages"]
    if state == "pending":
        messages = json.loads(invoke("pending", "-t", TABLE, "--json", database=dsn).out)["messages"]
    return str(messages[0]["event_id"])


def error(result: Result) -> str:
    lines = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.err
    assert "Traceback" not in result.err
    return lines[0]

"""Nothing to show is an empty list, and 0. What was named and is not there is 12, and what is done already is 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs import markdown
from tests.integration.cli.command import invoke
from tests.integration.cli.sql import TABLE, add
from tests.services.postgres import Database

BECAUSE = ("--yes", "--reason", "mended")
NOBODY = "0193f2d4-7c1e-7000-8000-000000000000"
LISTS = {
    "pending": "messages",
    "pending --tenant " + NOBODY: "messages",
    "dead list": "messages",
    "dead list --topic billing.**": "messages",
    "dead list --event-id " + NOBODY: "messages",
    "dead group": "groups",
    "dead group --code TX.NOTHING": "groups",
    "dead history": "records",
    "dead history --unfinished": "records",
}
NAMED = (
    ("dead", "show", NOBODY),
    ("dead", "replay", "--all", *BECAUSE),
    ("dead", "replay", "--all", "--dry-run"),
    ("dead", "replay", "--published", "--topic", "billing.**", *BECAUSE),
    ("dead", "discard", "--code", "TX.NOTHING", *BECAUSE),
    ("dead", "discard", "--event-id", NOBODY, "--dry-run"),
    ("dead", "resume", NOBODY, "--yes"),
    ("dead", "release", "nobody's", *BECAUSE),
    ("dead", "postpone", NOBODY, "--delay", "1h", *BECAUSE),
)
DONE = (("clean",), ("clean", "--dry-run"), ("schema", "create"), ("schema", "upgrade"), ("status",))


@pytest.fixture
def dsn(database: Database) -> str:
    assert invoke("schema", "create", "-t", TABLE, database=database.dsn).code == 0
    return database.dsn


@pytest.mark.parametrize("command", LISTS)
def test_a_list_of_nothing_is_a_list(dsn: str, command: str) -> None:
    plain = invoke(*command.split(), "-t", TABLE, database=dsn)
    assert (plain.code, plain.out) == (0, "")
    assert len(plain.err.splitlines()) == 1
    found = invoke(*command.split(), "-t", TABLE, "--json", database=dsn)
    assert (found.code, json.loads(found.out)[LISTS[command]]) == (0, [])


@pytest.mark.parametrize("args", NAMED, ids=" ".join)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["plain", "json"])
def test_what_was_named_and_is_not_there(dsn: str, args: tuple[str, ...], form: tuple[str, ...]) -> None:
    result = invoke(*args, *form, "-t", TABLE, database=dsn)
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert (result.code, len(errors), result.out) == (12, 1, ""), result.err


def test_a_plan_whose_messages_are_gone(dsn: str, tmp_path: Path) -> None:
    add(dsn, "dead", 2)
    plan = tmp_path / "plan.json"
    plan.write_text(invoke("dead", "discard", "--all", "--dry-run", "--json", "-t", TABLE, database=dsn).out)
    assert invoke("dead", "discard", "--all", *BECAUSE, "-t", TABLE, database=dsn).code == 0
    again = invoke("dead", "discard", "--plan", str(plan), *BECAUSE, "-t", TABLE, database=dsn)
    assert again.code == 12


@pytest.mark.parametrize("args", DONE, ids=" ".join)
def test_what_is_as_it_should_be_already(dsn: str, args: tuple[str, ...]) -> None:
    assert invoke(*args, "-t", TABLE, database=dsn).code == 0


def test_the_rule_is_documented() -> None:
    text = (markdown.REPOSITORY / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    rule = text.partition("### When nothing is there")[2].partition("\n#")[0]
    for args in (*NAMED, *DONE, *(tuple(command.split()) for command in LISTS)):
        command = " ".join(args[:2] if args[0] in ("dead", "schema") else args[:1])
        assert f"`{command}`" in rule, command

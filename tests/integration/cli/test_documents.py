"""The command line as it is documented: the guide's commands run, and JSON has the keys that the reference lists."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.docs import markdown
from tests.docs.generated import walk
from tests.integration.cli.command import invoke
from tests.integration.cli.sql import TABLE, add
from tests.services.postgres import Database

GUIDE = (markdown.REPOSITORY / "docs" / "how-to" / "command-line.md").read_text(encoding="utf-8")
REFERENCE = (markdown.REPOSITORY / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
CALLS = {
    "outbox schema create": [],
    "outbox enqueue": ["shop.order.placed.v1"],
    "outbox pending": [],
    "outbox status": [],
    "outbox clean": [],
    "outbox schema verify": [],
    "outbox schema upgrade": [],
    "outbox dead list": [],
    "outbox dead group": [],
    "outbox dead history": [],
    "outbox dead replay": ["--topic", "shop.**", "--dry-run"],
    "outbox dead discard": ["--topic", "shop.**", "--reason", "of no use", "--yes"],
}


def test_the_commands_of_the_guide_run(database: Database) -> None:
    commands = [
        line.removeprefix("$ ")
        for block in markdown.blocks(GUIDE)
        if block.language == "console" and block.runs
        for line in block.text.splitlines()
    ]
    assert len(commands) > 10
    for command in commands:
        program, *args = shlex.split(command)
        assert program == "outbox"
        done = invoke(*args, database=database.dsn)
        assert done.code == 0, f"{command}\n{done.err}"
        assert done.out, command


def documented(command: str) -> set[str]:
    """The keys of a command's document: those of the row's first level."""
    match = re.search(rf"^\| `{command}` \| (.*) \|$", REFERENCE, re.MULTILINE)
    assert match is not None, f"{command} is not in the table of JSON documents"
    flat = re.sub(r"\([^()]*\)", "", match[1])
    parts = [part.partition(":")[0] for part in flat.split(";")]
    return {key for part in parts for key in re.findall(r"`(\w+)`", part)}


@pytest.fixture
def dsn(database: Database) -> str:
    assert invoke("schema", "create", "-t", TABLE, database=database.dsn).code == 0
    return database.dsn


def test_every_command_that_writes_json_is_in_the_reference() -> None:
    for path, command in walk():
        if any(parameter.name == "as_json" for parameter in command.params):
            assert documented(path), path


def test_documents_have_the_keys_of_the_reference(dsn: str) -> None:
    add(dsn, "dead", 2)
    for command, args in CALLS.items():
        done = invoke(*command.split()[1:], *args, "-t", TABLE, "--json", database=dsn)
        assert done.code == 0, done.err
        assert set(json.loads(done.out)) == documented(command), command


def test_messages_and_tables_have_the_keys_of_the_reference(dsn: str) -> None:
    invoke("enqueue", "shop.order.placed.v1", "-t", TABLE, database=dsn)
    shown = json.loads(invoke("pending", "-t", TABLE, "--payload", "--json", database=dsn).out)
    row = next(line for line in REFERENCE.splitlines() if line.startswith("| `outbox pending` | `table`"))
    listed = set(re.findall(r"`(\w+)`", row.partition("a list with")[2])) - {"payload_hex"}
    assert set(shown["messages"][0]) == listed
    (found,) = json.loads(invoke("status", "-t", TABLE, "--json", database=dsn).out)["tables"]
    row = next(line for line in REFERENCE.splitlines() if line.startswith("| `outbox status` | `tables`"))
    flat = re.sub(r"\([^()]*\)", "", row.partition("a list with")[2])
    assert set(found) == set(re.findall(r"`(\w+)`", flat))

"""The parts that commands are made of, and what shells and people see of the whole."""

from __future__ import annotations

import io
import json
import logging
import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from uuid import UUID

import click
import pytest
from click.testing import CliRunner

from outbox_core import errors
from outbox_core.cli.failures import ExitCode, exit_code
from outbox_core.cli.logs import JsonLines, Lines
from outbox_core.cli.output import Output, plain, shown
from outbox_core.cli.parameters import MOMENT, MOMENT_AHEAD
from outbox_core.cli.registry import COMMANDS, Entry
from outbox_core.cli.root import root
from outbox_core.errors import OutboxError
from outbox_core.table import TableName

NOON = datetime(2026, 1, 31, 14, 0, 0, 5000, tzinfo=timezone(timedelta(hours=2)))


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Thing:
    name: str
    made: datetime


def test_help_lists_every_command_without_importing_one() -> None:
    before = set(sys.modules)
    done = CliRunner().invoke(root, ["--help"])
    assert done.exit_code == 0
    for entry in COMMANDS:
        assert f"  {entry.name} " in done.output
    assert not [name for name in set(sys.modules) - before if name.startswith("outbox_core.cli.commands.")]


@pytest.mark.parametrize("group", [[], ["dead"], ["schema"]])
def test_a_group_without_a_command_shows_its_help_as_it_is(group: list[str]) -> None:
    asked = CliRunner().invoke(root, [*group, "--help"], prog_name="outbox")
    bare = CliRunner().invoke(root, group, prog_name="outbox")
    assert (bare.exit_code, bare.stdout, bare.stderr) == (2, "", asked.stdout)


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_loads_and_says_in_help_what_the_list_says(entry: Entry) -> None:
    command = entry.load()
    assert command.name == entry.name
    assert command.get_short_help_str(limit=200) == entry.summary


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = CliRunner().invoke(root, ["completion", shell], prog_name="outbox")
    assert script.exit_code == 0
    assert f"_OUTBOX_COMPLETE={shell}_complete" in script.output


def test_a_shell_is_told_commands_and_options() -> None:
    words = {"_OUTBOX_COMPLETE": "bash_complete", "COMP_WORDS": "outbox sta", "COMP_CWORD": "1"}
    assert CliRunner(env=words).invoke(root, [], prog_name="outbox").output == "plain,status\n"
    words |= {"COMP_WORDS": "outbox relay --on-pub", "COMP_CWORD": "2"}
    assert CliRunner(env=words).invoke(root, [], prog_name="outbox").output == "plain,--on-published\n"
    words |= {"COMP_WORDS": "outbox relay --on-published ", "COMP_CWORD": "3"}
    assert CliRunner(env=words).invoke(root, [], prog_name="outbox").output == "plain,mark\nplain,delete\n"


def test_every_family_of_errors_has_an_exit_code() -> None:
    classes = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, OutboxError)
    ]
    made = [(each, each.__new__(each)) for each in classes if not issubclass(each, ExceptionGroup)]
    unexpected = {each for each, error in made if exit_code(error) is ExitCode.UNEXPECTED}
    assert unexpected == {OutboxError, errors.RelayFailed, *_family(errors.EventBusError, classes)}


def _family(parent: type[OutboxError], classes: list[type[OutboxError]]) -> set[type[OutboxError]]:
    return {
        each for each in classes if issubclass(each, parent) and not issubclass(each, errors.ProviderError)
    }


def test_a_relay_that_failed_has_the_code_of_what_ended_it() -> None:
    failed = errors.RelayFailed("ended")
    failed.__cause__ = errors.StorageUnavailable("away")
    assert exit_code(failed) is ExitCode.DATABASE
    assert exit_code(ExceptionGroup("tasks", [failed])) is ExitCode.DATABASE
    assert exit_code(KeyboardInterrupt()) is ExitCode.INTERRUPTED
    assert exit_code(ValueError("x")) is ExitCode.UNEXPECTED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (NOON, "2026-01-31 12:00:00Z"),
        (timedelta(minutes=90), "1h30m"),
        (Colour.RED, "red"),
        ("a\tb\x1b[2J\n", r"a\tb\x1b[2J\n"),
        ("é ⏰", "é ⏰"),
    ],
)
def test_values_for_people(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("value", "json_value"),
    [
        (NOON, "2026-01-31T12:00:00.005000Z"),
        (timedelta(seconds=1.5), 1.5),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (TableName("a", "b"), "a.b"),
        (Colour.RED, "red"),
        ({"k": (1, None)}, {"k": [1, None]}),
        ([math.inf, math.nan, 1.5], [None, None, 1.5]),
        (Thing("x", NOON), {"name": "x", "made": "2026-01-31T12:00:00.005000Z"}),
    ],
)
def test_values_for_json(value: object, json_value: object) -> None:
    assert plain(value) == json_value
    with pytest.raises(TypeError, match="a bytes has no form in JSON"):
        plain(b"")


def test_a_table_in_a_pipe_is_lines_of_cells(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("name", "made"), [("x\ty", None), ("é", 1)])
    Output().table(("name",), [], empty="nothing is there")
    found = capsys.readouterr()
    assert found.out == "name\tmade\nx\\ty\t\né\t1\n"
    assert found.err == "nothing is there\n"


def test_json_is_all_there_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.table(("name",), [("x",)])
    output.fields({"name": "x"})
    output.line("x")
    output.document({"é": 1})
    assert capsys.readouterr().out == '{"é": 1}\n'


def test_moments_are_read() -> None:
    assert MOMENT.convert("2026-01-31T08:00:00+02:00", None, None) == datetime(2026, 1, 31, 6, tzinfo=UTC)
    assert MOMENT.convert("2026-01-31", None, None) == datetime(2026, 1, 31, tzinfo=UTC)
    ago = datetime.now(UTC) - MOMENT.convert("2h", None, None)
    assert abs(ago - timedelta(hours=2)) < timedelta(minutes=1)
    ahead = MOMENT_AHEAD.convert("2h", None, None) - datetime.now(UTC)
    assert abs(ahead - timedelta(hours=2)) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "31.1.2026", "5"])
def test_malformed_moments_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a time such as 2026-01-31T08:00:00Z"):
        MOMENT.convert(text, None, None)


def logged(formatter: logging.Formatter, error: Exception | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("outbox_core.test_of_logs")
    logger.addHandler(handler)
    try:
        logger.error("a\nb", exc_info=error, extra={"outbox_table": "a.b", "other": "canary"})
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


def test_a_log_for_people_is_a_line_a_record() -> None:
    assert logged(Lines()).partition("Z ")[2] == "ERROR outbox_core.test_of_logs: a\\nb\n"


def test_a_log_for_machines_is_an_object_a_line() -> None:
    record = json.loads(logged(JsonLines()))
    assert record.pop("time").endswith("Z")
    assert record == {
        "level": "error",
        "logger": "outbox_core.test_of_logs",
        "message": "a\nb",
        "table": "a.b",
    }


@pytest.mark.parametrize("formatter", [Lines(), JsonLines()])
def test_a_log_shows_where_an_error_comes_from_but_not_what_a_driver_said(
    formatter: logging.Formatter,
) -> None:
    try:
        try:
            raise ValueError("canary")
        except ValueError as inner:
            raise errors.StorageUnavailable("the database is away") from inner
    except OutboxError as error:
        text = logged(formatter, error)
    assert "StorageUnavailable: the database is away" in text
    assert "because of ValueError" in text
    assert "test_cli.py" in text
    assert "canary" not in text.replace('raise ValueError("canary")', "").replace(
        'raise ValueError(\\"canary\\")', ""
    )

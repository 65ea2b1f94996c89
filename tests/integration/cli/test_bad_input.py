"""What goes wrong before anything is done: a clear line, a hint, and an exit code by family."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import psycopg
import pytest

from tests.integration.cli.command import Result, environment, invoke, outbox, terminal
from tests.integration.cli.sql import TABLE, add, execute
from tests.services.postgres import Database

NOWHERE = "postgresql://ada:canary-secret@127.0.0.1:1/nothing"
COMMANDS = {
    "pending": ("pending", "-t", TABLE),
    "status": ("status", "-t", TABLE),
    "clean": ("clean", "-t", TABLE),
    "enqueue": ("enqueue", "shop.order.placed.v1", "-t", TABLE),
    "verify": ("schema", "verify", "-t", TABLE),
    "relay": ("relay", "-t", TABLE, "--to", "nats://127.0.0.1:4222"),
}


def one_line(result: Result) -> tuple[str, str]:
    """The error and its hint, which is all there is."""
    lines = result.err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    hints = [line for line in lines if line.startswith("hint: ")]
    assert len(errors) == 1, result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    return errors[0], "".join(hints)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "relay"])
def test_an_unknown_table(database: Database, command: str) -> None:
    result = invoke(*COMMANDS[command], database=database.dsn)
    error, hint = one_line(result)
    assert result.code == 6
    assert error.startswith(f"error: {TABLE}: there is no such table in this database")
    assert f"Create it with `outbox schema create --table {TABLE}` or" in error
    assert hint == ""


def test_an_unknown_table_of_a_relay(database: Database) -> None:
    result = outbox(*COMMANDS["relay"], database=database.dsn)
    assert result.code == 6
    assert f"error: {TABLE}: there is no such table in this database" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "relay"])
def test_a_server_that_is_away(command: str) -> None:
    result = invoke(*COMMANDS[command], database=NOWHERE)
    error, hint = one_line(result)
    assert result.code == 4
    assert error == (
        "error: cannot connect to the database at 127.0.0.1:1/nothing: nothing listens there; check host and port,"
        " and that PostgreSQL is running and listens on that address [ConnectionRefusedError] [STORAGE.UNAVAILABLE]"
    )
    assert hint == (
        "hint: Is the server up, and can it be reached from here?"
        " The database is postgresql://ada:***@127.0.0.1:1/nothing."
    )


def test_a_server_that_is_away_from_a_relay() -> None:
    result = outbox(*COMMANDS["relay"], database=NOWHERE)
    assert result.code == 4
    assert "cannot connect to the database" in result.err
    assert "canary-secret" not in result.err


def test_debug_shows_where_it_comes_from() -> None:
    result = invoke("status", "-t", TABLE, "--debug", database=NOWHERE)
    assert result.code == 4
    assert "Traceback (most recent call last)" in result.err
    first = invoke("--debug", "status", "-t", TABLE, database=NOWHERE)
    assert "Traceback (most recent call last)" in first.err
    assert "canary-secret" not in result.err + first.err


def test_a_database_that_is_not_there(database: Database) -> None:
    missing = database.dsn.replace(database.name, "nobody_made_this")
    result = invoke("status", "-t", TABLE, database=missing)
    error, hint = one_line(result)
    assert result.code == 4
    assert "there is no database of that name there; check the name, or create the database" in error
    assert "InvalidCatalogNameError (3D000)" in error
    # A server that answers is up: only where it is remains to be said, and it is a sentence.
    assert hint.startswith("hint: The database is postgresql://")
    assert hint.endswith("/nobody_made_this.")


def test_a_role_without_permission(database: Database, unique_name: str) -> None:
    invoke("schema", "create", "-t", TABLE, database=database.dsn)
    add(database.dsn, "published", age=1e7)
    role = f"r_{unique_name}"
    execute(database.dsn, f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA shop TO {role}")
    try:
        options = psycopg.conninfo.conninfo_to_dict(database.dsn)
        mine = f"postgresql://{role}@{options['host']}:{options['port']}/{options['dbname']}"
        parts = {"pending": "viewer", "status": "viewer", "clean": "operator", "enqueue": "producer"}
        for name, part in parts.items():
            result = invoke(*COMMANDS[name], database=mine)
            error, hint = one_line(result)
            assert result.code == 5, result.err
            assert error.startswith("error: the database role may not"), name
            assert hint == ""
            (command,) = re.findall(r"`outbox (schema roles [^`]+)`", error)
            assert command == f"schema roles --table {TABLE} --{part} ROLE"
            assert invoke(*command.replace("ROLE", role).split()).code == 0
        for name in ("create", "upgrade"):
            result = invoke("schema", name, "-t", TABLE, database=mine)
            assert result.code == 5, result.err
            assert f"`outbox schema roles --table {TABLE} --migrator ROLE`" in one_line(result)[0]
        unread = invoke("schema", "verify", "-t", TABLE, "--json", database=mine)
        assert unread.code == 5, unread.err
        assert (json.loads(unread.out)["version"], json.loads(unread.out)["ok"]) == (None, False)
        assert f"may not read the schema version of {TABLE}" in unread.err
    finally:
        execute(database.dsn, f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("status", "-t", "Orders"), "invalid table name 'Orders'"),
        (("status", "-t", "orders", "--watch", "--interval", "5"), "expected a duration such as 200ms"),
        (("clean", "-t", "orders", "--retention", "soon"), "expected a duration such as 200ms"),
        (("pending", "-t", "orders", "--tenant", "7"), "expected a UUID such as"),
        (("pending", "-t", "orders", "--limit", "0"), "0 is not in the range"),
        (("pending",), "Missing option '--table' / '-t'"),
        (("enqueue", "a.b", "1", "-t", "orders", "--header", "x"), "write it as NAME=VALUE"),
        (("enqueue", "a.b", "1", "-t", "orders", "--lines"), "give - as the payload"),
        (("schema", "print", "-t", "orders", "--to", "99"), "99 is not in the range"),
        (("relay", "-t", "orders", "--lock-ttl", "60"), "expected a duration such as 200ms"),
        (("relay", "-t", "orders", "--to", "kafka://u:canary-secret@"), "expected a dispatcher URL"),
        (("status", "-t", "orders", "-d", "postgresql://u:canary-secret@db:54x/shop"), "the port after its host"),
        (("relay", "-t", "orders", "-d", "postgresql://u:canary-secret@db:99999/shop"), "the port after its host"),
        (("dead", "list", "-t", "orders", "--since", "1h", "--until", "2h"), "must be before --until"),
        (("dead", "group", "-t", "orders", "--since", "2026-01-31", "--until", "2026-01-31"), "must be before --until"),
        (("dead", "replay", "-t", "orders", "--since", "2026-02-01", "--until", "2026-01-01"), "must be before --"),
        (("relay",), "name a table with --table, or several in OUTBOX_RELAY_TABLES"),
        (("statsu",), "there is no command 'statsu'; did you mean 'status'?"),
    ],
)  # fmt: skip
def test_usage(args: tuple[str, ...], message: str) -> None:
    result = invoke(*args, database=NOWHERE)
    error, hint = one_line(result)
    assert result.code == 2
    assert message in error
    assert hint.endswith("--help` lists what there is.")
    assert "canary-secret" not in result.err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("enqueue", "Not A Topic", "1"), 8, "MESSAGE.TOPIC"),
        (("enqueue", "a.b", "{canary-secret"), 8, "MESSAGE.ENCODING"),
        (("enqueue", "a.b", "1", "--header", "cc=x"), 8, "MESSAGE.HEADER"),
        (("clean", "--retention", "0"), 3, "CONFIG.RETENTION_ZERO"),
    ],
)
def test_refused_values(args: tuple[str, ...], code: int, message: str) -> None:
    result = invoke(*args, "-t", TABLE, database=NOWHERE)
    assert result.code == code
    assert f"[{message}]" in one_line(result)[0]
    assert "canary-secret" not in result.err


def test_all_wrong_settings_in_one_line() -> None:
    wrong = {
        "OUTBOX_RELAY_TABLES": "Orders",
        "OUTBOX_RELAY_BATCH_SIZE": "many",
        "OUTBOX_RELAY_TO": "nats://ada:canary-secret@@host",
        "OUTBOX_CLEANER_RETENTION": "0",
    }
    result = invoke("relay", database=NOWHERE, env=wrong)
    error, _ = one_line(result)
    assert result.code == 3
    assert error.startswith("error: 4 settings are wrong: ")
    assert "OUTBOX_RELAY_BATCH_SIZE=many: expected a whole number from 1 to 2147483647" in error
    assert "canary-secret" not in result.err


def test_a_relay_without_database_and_destination_says_both() -> None:
    result = invoke("relay", "-t", TABLE)
    error, _ = one_line(result)
    assert result.code == 3
    assert "OUTBOX_DATABASE_URL is not set" in error
    assert "OUTBOX_RELAY_TO is not set" in error


def test_a_misspelt_variable_is_named_where_the_right_one_is_missed() -> None:
    result = invoke("status", "-t", TABLE, env={"OUTBOX_DATABSE_URL": NOWHERE})
    _, hint = one_line(result)
    assert result.code == 2
    assert hint == (
        "hint: The variable OUTBOX_DATABSE_URL is not known and has no effect; did you mean OUTBOX_DATABASE_URL?"
        " `outbox status --help` lists what there is."
    )


def test_no_colour_is_respected(database: Database) -> None:
    invoke("schema", "create", "-t", TABLE, database=database.dsn)
    with terminal("status", "-t", TABLE, database=database.dsn) as coloured:
        assert coloured.end() == 0
    with terminal("status", "-t", TABLE, database=database.dsn, env={"NO_COLOR": "1"}) as plain:
        assert plain.end() == 0
    assert "\x1b[1m" in coloured.raw
    assert "\x1b[3" not in plain.raw
    assert "┃" in plain.screen


WITHOUT_CLICK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "click":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from outbox_core.cli import main
main()
"""


def test_without_the_extra_the_install_command_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLICK, "status"],
        capture_output=True, text=True, timeout=30, env=environment(None, {"PATH": os.environ["PATH"]}),
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr == (
        "error: the command line `outbox` needs the package 'click', which is not installed."
        " Install it with: pip install 'outbox-core[cli]'\n"
    )

"""``outbox schema`` through the real command."""

from __future__ import annotations

import json

import pytest

from outbox_core import schema
from tests.integration.cli.command import invoke, outbox, terminal
from tests.integration.cli.sql import TABLE, execute
from tests.services.postgres import Database


def test_create_makes_the_table_once(database: Database) -> None:
    first = outbox("schema", "create", "--table", TABLE, database=database.dsn)
    assert (first.code, first.out, first.err) == (0, f"created {TABLE}\n", "")
    second = invoke("schema", "create", "--table", TABLE, "--json", database=database.dsn)
    assert second.code == 0
    assert json.loads(second.out) == {"table": TABLE, "created": False, "version": schema.CURRENT_VERSION}


def test_verify_says_what_differs_and_how_it_is_mended(database: Database) -> None:
    invoke("schema", "create", "-t", TABLE, database=database.dsn)
    good = invoke("schema", "verify", "-t", TABLE, database=database.dsn)
    assert (good.code, good.out) == (0, f"{TABLE} is as expected (schema version {schema.CURRENT_VERSION})\n")
    execute(database.dsn, "DROP INDEX shop.orders_outbox_pending")
    bad = outbox("schema", "verify", "-t", TABLE, database=database.dsn)
    assert bad.code == 6
    assert "orders_outbox_pending" in bad.out
    assert "CREATE INDEX" in bad.out
    found = invoke("schema", "verify", "-t", TABLE, "--json", database=database.dsn)
    assert found.code == 6
    document = json.loads(found.out)
    assert not document["ok"]
    assert {each["kind"] for each in document["differences"]} == {"index"}


def test_a_table_that_is_no_outbox_is_called_that_and_nothing_is_offered_to_mend_it(
    database: Database,
) -> None:
    execute(database.dsn, "CREATE TABLE public.orders (id int PRIMARY KEY)")
    for command in (("schema", "verify"), ("schema", "upgrade"), ("schema", "create"), ("pending",)):
        found = invoke(*command, "-t", "orders", database=database.dsn)
        assert (found.code, found.out) == (6, "")
        assert "public.orders: it exists and is not an outbox table; choose another name" in found.err


def test_upgrade_applies_what_is_missing_and_shows_its_progress(database: Database) -> None:
    invoke("schema", "upgrade", "-t", TABLE, "--to", "1", database=database.dsn)
    old = invoke("schema", "create", "-t", TABLE, database=database.dsn)
    assert old.code == 6
    assert f"Upgrade it with `outbox schema upgrade --table {TABLE}`" in old.err
    with terminal("schema", "upgrade", "-t", TABLE, database=database.dsn) as shown:
        assert shown.end() == 0
    assert f"upgrading {TABLE}" in shown.screen
    assert "step 2 indexes; locks: SHARE UPDATE EXCLUSIVE" in shown.screen
    assert f"{TABLE}: applied 2 indexes, 3 audit" in shown.screen
    again = invoke("schema", "upgrade", "-t", TABLE, "--json", database=database.dsn)
    assert json.loads(again.out) == {"table": TABLE, "version": schema.CURRENT_VERSION, "applied": []}


def test_an_upgrade_does_not_go_back_and_says_so(database: Database) -> None:
    invoke("schema", "create", "-t", TABLE, database=database.dsn)
    back = invoke("schema", "upgrade", "-t", TABLE, "--to", "1", database=database.dsn)
    assert (back.code, back.out) == (6, "")
    assert back.err.startswith(
        f"error: {TABLE}: it is at version {schema.CURRENT_VERSION}, and an upgrade does not go back to 1;"
        " nothing was changed."
    )
    assert f"`outbox schema print --table {TABLE} --from {schema.CURRENT_VERSION} --to 1`" in back.err
    assert invoke("schema", "verify", "-t", TABLE, database=database.dsn).code == 0
    same = invoke("schema", "upgrade", "-t", TABLE, database=database.dsn)
    assert (same.code, same.out) == (
        0, f"{TABLE}: nothing to do, it is at version {schema.CURRENT_VERSION}\n",
    )  # fmt: skip


def test_a_table_that_is_ahead_of_the_library_is_left_as_it_is(database: Database) -> None:
    """As in a deployment: the schema is upgraded before the code."""
    invoke("schema", "create", "-t", TABLE, database=database.dsn)
    ahead = schema.CURRENT_VERSION + 1
    execute(database.dsn, "UPDATE shop.outbox_schema_version SET version = version + 1")
    done = invoke("schema", "upgrade", "-t", TABLE, "--json", database=database.dsn)
    assert json.loads(done.out) == {"table": TABLE, "version": ahead, "applied": []}


def test_print_is_the_sql_and_needs_no_database(database: Database) -> None:
    printed = outbox("schema", "print", "-t", TABLE)
    assert (printed.code, printed.out) == (0, schema.script(TABLE))
    execute(database.dsn, invoke("schema", "print", "-t", TABLE, "--no-transaction").out)
    assert invoke("schema", "verify", "-t", TABLE, database=database.dsn).code == 0


def test_roles_prints_grants(database: Database) -> None:
    printed = invoke("schema", "roles", "-t", TABLE, "--viewer", "looker")
    assert (printed.code, printed.out) == (0, schema.roles(TABLE, viewer="looker"))
    nobody = invoke("schema", "roles", "-t", TABLE)
    assert nobody.code == 3
    assert "name at least one of migrator, producer" in nobody.err


@pytest.mark.parametrize("command", ["create", "verify", "upgrade"])
def test_without_a_database(command: str) -> None:
    result = invoke("schema", command, "-t", TABLE)
    assert result.code == 2
    assert "Missing option '--database' / '-d' (env var: 'OUTBOX_DATABASE_URL')" in result.err

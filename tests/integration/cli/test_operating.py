"""Messages written, listed, counted and cleaned through the real command."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.integration.cli.command import OUTBOX, PATIENCE, environment, invoke, outbox, terminal
from tests.integration.cli.sql import TABLE, add, execute, fetch, states
from tests.services.postgres import Database

TOPIC = "shop.order.placed.v1"
BECAUSE = ("--reason", "the disk is full", "--actor", "ada")


@pytest.fixture
def dsn(database: Database) -> str:
    assert invoke("schema", "create", "-t", TABLE, database=database.dsn).code == 0
    return database.dsn


def test_what_is_enqueued_is_pending(dsn: str) -> None:
    tenant = "22222222-2222-2222-2222-222222222222"
    written = outbox(
        "enqueue", TOPIC, '{"total": 3}', "-t", TABLE, "--key", "42", "--header", "source=hand", "--tenant", tenant,
        "--delay", "1h", "--json", database=dsn,
    )  # fmt: skip
    assert written.code == 0, written.err
    (message,) = json.loads(written.out)["messages"]
    plain = invoke("pending", "-t", TABLE, database=dsn)
    names, cells = plain.lines
    row = dict(zip(names, cells, strict=True))
    assert (row["event_id"], row["topic"], row["key"]) == (message["event_id"], TOPIC, "42")
    assert row["state"] == "pending"
    assert "payload" not in names
    shown = invoke("pending", "-t", TABLE, "--payload", "--json", "--tenant", tenant, database=dsn)
    (found,) = json.loads(shown.out)["messages"]
    assert found["headers"] == {"source": "hand"}
    assert json.loads(found["payload"]) == {"total": 3}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", found["available_at"])


def test_lines_of_standard_input_are_messages(dsn: str) -> None:
    lines = "".join(f'{{"n": {number}}}\n' for number in range(500))
    written = invoke("enqueue", TOPIC, "-", "--lines", "-t", TABLE, database=dsn, stdin=lines)
    assert written.code == 0, written.err
    assert len(written.lines) == 501
    assert states(dsn) == {"pending": 500}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('1\n\n{"a": }\n', "3 of standard input: cannot encode payload: it is not JSON: Expecting value at column 7"),
        ('"\\u0000"\n2\n', "1 of standard input: cannot encode payload: the text has NUL"),
        ('\n\n1\n{"x\u2028y": 1, oops}\n', "4 of standard input: cannot encode payload: it is not JSON"),
        ("1\r\n\r\nnope\r\n", "3 of standard input: cannot encode payload: it is not JSON"),
        (f'1\n2\n\n"{"x" * 600_000}"\n', "4 of standard input: the message has 600020 bytes"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_by_its_number_and_none_is_written(dsn: str, lines: str, says: str) -> None:
    args = ("-t", TABLE, "--header", "a=b", "--header", "c=é")
    refused = invoke("enqueue", TOPIC, "-", "--lines", *args, database=dsn, stdin=lines)
    assert refused.code == 8
    assert refused.err.startswith(f"error: line {says}"), refused.err
    assert "; nothing was written [MESSAGE." in refused.err
    assert states(dsn) == {}


def test_other_separators_of_lines_are_part_of_a_message(dsn: str) -> None:
    written = invoke("enqueue", TOPIC, "-", "--lines", "-t", TABLE, database=dsn, stdin='"a\u2028b\u0085c"\n')
    assert written.code == 0, written.err
    assert fetch(dsn, "SELECT payload #>> '{}' FROM shop.orders_outbox") == [("a\u2028b\u0085c",)]


def test_what_is_wrong_with_all_messages_is_not_blamed_on_a_line(dsn: str) -> None:
    refused = invoke("enqueue", "Not A Topic", "-", "--lines", "-t", TABLE, database=dsn, stdin="1\n")
    assert refused.code == 8
    assert "line" not in refused.err


def test_standard_input_that_is_no_text(dsn: str) -> None:
    done = subprocess.run(
        [OUTBOX, "enqueue", TOPIC, "-", "--lines", "-t", TABLE],
        input=b'1\n"\xff"\n',
        env=environment(dsn),
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (
        8, b"error: line 2 of standard input is not UTF-8; nothing was written\n",
    )  # fmt: skip


def test_control_characters_of_an_error_do_not_reach_the_terminal(dsn: str) -> None:
    add(dsn, "pending")
    execute(dsn, "UPDATE shop.orders_outbox SET attempts = 1, last_error = E'TX.ERROR \\x1b[2Jgone\\tx'")
    with terminal("pending", "-t", TABLE, database=dsn) as shown:
        assert shown.end() == 0
    assert "\x1b[2J" not in shown.raw
    assert r"\x1b[2Jgone\tx" in shown.screen.replace("\n", "")


def test_status_counts_and_says_who_leads(dsn: str) -> None:
    add(dsn, "pending", 3, age=120)
    add(dsn, "dead", 2)
    add(dsn, "published", 4)
    plain = outbox("status", "-t", TABLE, database=dsn)
    row = dict(zip(*plain.lines, strict=True))
    assert (row["table"], row["pending"], row["in flight"], row["dead"]) == (TABLE, "3", "0", "2")
    assert (row["leader"], row["breaker"]) == ("none", "closed")
    assert re.fullmatch(r"[12]m\d*s?", row["oldest"])
    (document,) = json.loads(invoke("status", "-t", TABLE, "--json", database=dsn).out)["tables"]
    assert document["pending"] == {"value": 3, "exact": True}
    assert document["rates"] is None


def test_a_watch_draws_again_and_shows_rates(dsn: str) -> None:
    with terminal("status", "-t", TABLE, "--watch", "--interval", "100ms", database=dsn) as shown:
        shown.wait_for("in/s")
        add(dsn, "pending", 7)
        shown.wait_for(" 7 ")
        shown.wait_for(" 0.0 ")
        shown.type("\x03")
        assert shown.end() == 130
    assert "Traceback" not in shown.screen


def test_a_watch_outlasts_trouble(dsn: str) -> None:
    with terminal("status", "-t", TABLE, "-w", "--interval", "100ms", database=dsn) as shown:
        shown.wait_for("Ctrl-C ends")
        execute(dsn, "ALTER TABLE shop.orders_outbox RENAME TO away")
        shown.wait_for("not up to date: shop.orders_outbox: there is no such table")
        execute(dsn, "ALTER TABLE shop.away RENAME TO orders_outbox")
        shown.raw = ""
        shown.wait_for("Ctrl-C ends")


def test_a_watch_in_a_pipe_is_a_document_a_line(dsn: str) -> None:
    watched = outbox(
        "status", "-t", TABLE, "--watch", "--interval", "50ms", "--count", "3", "--json", database=dsn
    )
    looks = [json.loads(line)["tables"][0] for line in watched.out.splitlines()]
    assert [look["rates"] is None for look in looks] == [True, False, False]
    plain = invoke("status", "-t", TABLE, "-w", "--interval", "50ms", "--count", "2", database=dsn)
    assert [line[0] for line in plain.lines] == ["table", TABLE, TABLE]


def test_clean_asks_on_a_terminal(dsn: str) -> None:
    add(dsn, "published", 5, age=10_000)
    add(dsn, "published", 2, age=10)
    with terminal("clean", "-t", TABLE, "--retention", "1h", database=dsn) as shown:
        shown.wait_for("Why (for the record)")
        shown.type("disk\n")
        shown.wait_for(f"Delete 5 messages of {TABLE}? [y/N]")
        shown.type("n\n")
        assert shown.end() == 9
    assert "declined; nothing was changed" in shown.screen
    assert states(dsn) == {"published": 7}
    with terminal("clean", "-t", TABLE, "--retention", "1h", *BECAUSE, database=dsn) as shown:
        shown.wait_for("? [y/N]")
        shown.type("y\n")
        assert shown.end() == 0
    assert f"cleaning {TABLE}" in shown.screen
    assert f"deleted 5 published and 0 dead messages of {TABLE}" in shown.screen
    assert states(dsn) == {"published": 2}
    audit = fetch(dsn, "SELECT action, actor, reason, planned, changed FROM shop.orders_outbox_audit")
    assert audit == [("clean", "ada", "the disk is full", 5, 5)]


def test_clean_in_a_pipe_wants_yes_and_a_reason(dsn: str) -> None:
    add(dsn, "dead", 3, age=10_000)
    args = ("clean", "-t", TABLE, "--dead-retention", "1h")
    dry = invoke(*args, "--dry-run", "--json", database=dsn)
    assert dry.code == 0
    document = json.loads(dry.out)
    assert document["found"]["dead"] == {"value": 3, "exact": True}
    assert document["deleted"] is None
    no_reason = invoke(*args, "--yes", database=dsn)
    assert no_reason.code == 2
    assert "a change of messages needs --reason" in no_reason.err
    no_yes = outbox(*args, *BECAUSE, database=dsn)
    assert no_yes.code == 2
    assert f"nobody can be asked whether to delete 3 messages of {TABLE}" in no_yes.err
    assert "--yes" in no_yes.err
    assert states(dsn) == {"dead": 3}
    done = invoke(*args, *BECAUSE, "--yes", "--json", database=dsn)
    assert (done.code, json.loads(done.out)["deleted"]) == (0, {"published": 0, "dead": 3})
    nothing = invoke(*args, database=dsn)
    assert (nothing.code, states(dsn)) == (0, {})

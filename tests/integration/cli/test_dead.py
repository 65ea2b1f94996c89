"""``outbox dead``: what it shows, what it asks, what it changes and what it refuses."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from tests.integration.cli.command import invoke, outbox, terminal
from tests.integration.cli.dead import BECAUSE, dead, error, event_id
from tests.integration.cli.sql import TABLE, add, execute, fetch, states
from tests.services.postgres import Database

CHANGES = (
    ("replay", "--all"),
    ("discard", "--all"),
    ("release", "k"),
    ("postpone", "{event_id}", "--delay", "1h"),
)


def test_list_group_and_show(shop: str) -> None:
    add(shop, "dead", 3, error="TX.TIMEOUT no answer", age=500)
    add(shop, "dead", 2, error="PROVIDER.PERMANENT too large")
    add(shop, "pending", 4)
    listed = dead(shop, "list")
    assert (listed.code, listed.lines[0][0], len(listed.lines)) == (0, "sequence", 6)
    assert "canary" not in listed.out
    assert len(dead(shop, "list", "--code", "TX.TIMEOUT").lines) == 4
    assert len(dead(shop, "list", "--since", "5m").lines) == 3
    short = dead(shop, "list", "--limit", "2")
    assert (len(short.lines), "2 of 5" in short.err) == (3, True)
    grouped = dead(shop, "group")
    assert [line[:2] for line in grouped.lines] == [
        ["code", "messages"],
        ["TX.TIMEOUT", "3"],
        ["PROVIDER.PERMANENT", "2"],
    ]
    assert dead(shop, "group", "--by", "topic").lines[1][:2] == ["shop.order.placed.v1", "5"]
    one = event_id(shop)
    shown = dead(shop, "show", one)
    assert (shown.code, ["event_id", one] in shown.lines, "canary" in shown.out) == (0, True, False)
    assert "canary" in dead(shop, "show", one, "--payload").out


def test_json_is_one_document_for_each_command(shop: str) -> None:
    add(shop, "dead", 2)
    listed = json.loads(dead(shop, "list", "--json").out)
    assert (listed["table"], listed["total"], len(listed["messages"])) == (TABLE, 2, 2)
    assert "payload" not in listed["messages"][0]
    grouped = json.loads(dead(shop, "group", "--json").out)
    assert [(group["value"], group["count"]) for group in grouped["groups"]] == [("TX.TIMEOUT", 2)]
    shown = json.loads(dead(shop, "show", event_id(shop), "--payload", "--json").out)
    assert json.loads(shown["message"]["payload"]) == {"secret": "canary"}
    replayed = json.loads(dead(shop, "replay", "--all", *BECAUSE, "--rate", "100", "--json").out)
    assert (replayed["action"], replayed["plan"]["total"], replayed["outcome"]["changed"]) == ("replay", 2, 2)
    (record,) = json.loads(dead(shop, "history", "--json").out)["records"]
    assert (record["id"], record["actor"], record["reason"], record["changed"], record["rate"]) == (
        replayed["outcome"]["audit_id"], "ada", "mended", 2, 100,
    )  # fmt: skip


def test_replay_in_a_pipe(shop: str) -> None:
    add(shop, "dead", 3)
    done = outbox("dead", "replay", "-t", TABLE, "--topic", "shop.**", *BECAUSE, database=shop)
    assert done.code == 0, done.err
    assert done.lines[:2] == [["topic", "messages"], ["shop.order.placed.v1", "3"]]
    assert done.out.splitlines()[-1].startswith("replayed 3 messages, on record as ")
    assert states(shop) == {"pending": 3}


def test_discard_in_a_pipe(shop: str) -> None:
    add(shop, "dead", 3)
    add(shop, "pending", 1)
    done = outbox("dead", "discard", "-t", TABLE, "--code", "TX.TIMEOUT", *BECAUSE, database=shop)
    assert (done.code, states(shop)) == (0, {"pending": 1})


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_on_a_terminal_it_shows_asks_and_does(shop: str, action: str) -> None:
    add(shop, "dead", 1200)
    with terminal("dead", action, "-t", TABLE, "--all", database=shop) as screen:
        screen.wait_for("1200")
        screen.wait_for("Why (for the record)")
        assert states(shop) == {"dead": 1200}
        screen.type("the consumer is mended\n")
        screen.wait_for(f"{action.capitalize()} 1,200 messages of {TABLE}? [y/N]")
        screen.type("y\n")
        screen.wait_for(f"{action}ed 1,200 messages")
        assert screen.end() == 0
    assert states(shop) == ({"pending": 1200} if action == "replay" else {})
    (record,) = json.loads(dead(shop, "history", "--json").out)["records"]
    assert (record["reason"], record["changed"]) == ("the consumer is mended", 1200)
    assert "@" in record["actor"]


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_declined(shop: str, answer: str) -> None:
    add(shop, "dead", 2)
    with terminal("dead", "discard", "-t", TABLE, "--all", "--reason", "x", database=shop) as screen:
        screen.wait_for("[y/N]")
        screen.type(answer)
        assert screen.end() == 9
        assert "declined; nothing was changed" in screen.screen
    assert states(shop) == {"dead": 2}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change[0]))
def test_where_nobody_can_be_asked_yes_and_a_reason_are_needed(shop: str, change: tuple[str, ...]) -> None:
    add(shop, "dead", 1)
    add(shop, "pending", 1, key="k")
    args = [part.format(event_id=event_id(shop, "pending")) for part in change]
    without_reason = dead(shop, *args, "--yes")
    assert (without_reason.code, "--reason" in error(without_reason)) == (2, True)
    without_yes = dead(shop, *args, "--reason", "x")
    assert (without_yes.code, "--yes" in error(without_yes)) == (2, True)
    assert states(shop) == {"dead": 1, "pending": 1}
    assert json.loads(dead(shop, "history", "--json").out)["records"] == []


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_what_makes_no_sense_is_refused(shop: str, action: str) -> None:
    add(shop, "dead", 1)
    cases = {
        (): "--all",
        ("--all", "--topic", "shop.**"): "contradicts",
        ("--topic", "shop.or*"): "shop.or*",
        ("--event-id", "not-a-uuid"): "expected a UUID",
        ("--since", "yesterday"): "expected a time",
        ("--until", "2026-13-01"): "expected a time",
        ("--code", "TX.TIMEOUT no answer"): "error code",
        ("--plan", "/nowhere/plan.json"): "plan.json",
    }
    for args, part in cases.items():
        refused = dead(shop, action, *args, *BECAUSE)
        assert (refused.code, part in error(refused)) == (2, True), (args, refused.err)
    missing = invoke("dead", action, "--all", *BECAUSE, database=shop)
    assert (missing.code, "--table" in error(missing)) == (2, True)
    assert states(shop) == {"dead": 1}


def test_rates_that_make_no_sense(shop: str) -> None:
    add(shop, "dead", 1)
    for rate in ("0", "-1", "fast", "inf", "nan", "1e-300", "1e-9", "1000001"):
        refused = dead(shop, "replay", "--all", "--rate", rate, *BECAUSE)
        assert (refused.code, "0.001 to 1,000,000" in error(refused)) == (2, True), rate
    assert states(shop) == {"dead": 1}


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_a_filter_that_matches_nothing(shop: str, action: str) -> None:
    add(shop, "dead", 1)
    for args in (("--topic", "billing.**"), ("--event-id", str(uuid4()))):
        result = dead(shop, action, *args, *BECAUSE)
        assert (result.code, error(result)) == (
            12, f"error: no dead message of {TABLE} fits; nothing was changed",
        )  # fmt: skip
    assert (dead(shop, "list", "--topic", "billing.**").code, states(shop)) == (0, {"dead": 1})
    missing = dead(shop, "show", str(uuid4()))
    assert (missing.code, "has no message" in error(missing)) == (12, True)


def test_consumers_that_may_have_forgotten(shop: str) -> None:
    add(shop, "dead", 2, age=7200)
    done = dead(shop, "replay", "--all", "--dry-run", "--dedupe-window", "billing", "1h")
    assert "warning: 2 are older than the 1h that billing remembers" in done.err


def test_published_messages(shop: str) -> None:
    add(shop, "published", 2)
    assert dead(shop, "replay", "--all", *BECAUSE).code == 12
    done = dead(shop, "replay", "--all", "--published", *BECAUSE)
    assert (done.code, states(shop)) == (0, {"pending": 2})


def test_release(shop: str) -> None:
    add(shop, "dead", 1, key="k")
    add(shop, "pending", 1, key="k")
    done = dead(shop, "release", "k", *BECAUSE)
    assert (done.code, done.out.splitlines()[-1].startswith("released ")) == (0, True)
    assert states(shop) == {"pending": 2}
    execute(shop, "UPDATE shop.orders_outbox SET locked_at = now(), lock_token = gen_random_uuid()")
    flying = dead(shop, "release", "k", *BECAUSE)
    assert (flying.code, "in flight" in error(flying)) == (12, True)
    nobody = dead(shop, "release", "nobody's", *BECAUSE)
    assert (nobody.code, "nothing was changed" in error(nobody)) == (12, True)


def test_postpone(shop: str) -> None:
    add(shop, "pending", 1)
    add(shop, "dead", 1)
    waiting, gone = event_id(shop, "pending"), event_id(shop)
    done = dead(shop, "postpone", waiting, gone, "--delay", "2h", *BECAUSE)
    assert (done.code, "postponed 1 messages" in done.out, "1 were not pending" in done.err) == (
        0,
        True,
        True,
    )
    later = "SELECT event_id FROM shop.orders_outbox WHERE available_at > now() + interval '1 hour'"
    assert [str(row[0]) for row in fetch(shop, later)] == [waiting]
    nothing = dead(shop, "postpone", gone, "--delay", "2h", *BECAUSE)
    assert (nothing.code, "none of these is a pending message" in error(nothing)) == (12, True)
    for args in ((), ("--delay", "1h", "--until", "2030-01-01"), ("--delay", "soon"), ("--until", "soon")):
        assert dead(shop, "postpone", waiting, *args, *BECAUSE).code == 2


def test_a_duration_given_to_postpone_is_from_now(shop: str) -> None:
    add(shop, "pending", 1)
    waiting = event_id(shop, "pending")
    done = dead(shop, "postpone", waiting, "--until", "2h", *BECAUSE)
    assert done.code == 0, done.err
    ((due, late),) = fetch(
        shop,
        "SELECT to_char(available_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),"
        " available_at > now() + interval '1 hour' FROM shop.orders_outbox",
    )
    assert late
    assert f"1 pending messages would be due at {due}Z" in done.err
    past = dead(shop, "postpone", waiting, "--until", "2020-01-01", *BECAUSE)
    assert past.code == 2
    assert "2020-01-01 00:00:00Z is in the past; --delay 0 makes messages due now" in error(past)


def test_resuming_what_was_broken_off(shop: str) -> None:
    add(shop, "dead", 3)
    execute(
        shop,
        "INSERT INTO shop.orders_outbox_audit (id, action, actor, reason, filter, as_of, planned)"
        """ VALUES (gen_random_uuid(), 'replay', 'ada', 'first try', '{"everything": true}', now(), 3)""",
    )
    (record,) = json.loads(dead(shop, "history", "--unfinished", "--json").out)["records"]
    assert (record["actor"], record["changed"]) == ("ada", 0)
    unexplained = dead(shop, "resume", record["id"], "--yes")
    assert (unexplained.code, "needs --reason" in error(unexplained)) == (2, True)
    done = dead(shop, "resume", record["id"], "--yes", "--reason", "the first host died", "--actor", "bob")
    assert (done.code, "replayed 3 messages" in done.out) == (0, True), done.err
    assert dead(shop, "resume", record["id"], "--yes").code == 12
    assert dead(shop, "resume", str(uuid4()), "--yes").code == 12
    assert dead(shop, "history", "--unfinished").out == ""
    records = json.loads(dead(shop, "history", "--json").out)["records"]
    assert {(each["actor"], each["reason"], each["changed"]) for each in records} == {
        ("ada", "first try", 3),
        ("bob", "the first host died", 0),
    }
    assert [each["filter"] for each in records if each["actor"] == "bob"] == [{"resumes": record["id"]}]


def test_a_viewer_may_look_and_not_touch(shop: str, unique_name: str) -> None:
    add(shop, "dead", 1)
    execute(shop, f"CREATE ROLE {unique_name} LOGIN")
    try:
        grants = invoke("schema", "roles", "-t", TABLE, "--viewer", unique_name, database=shop)
        assert grants.code == 0, grants.err
        execute(shop, grants.out)
        execute(shop, f"ALTER ROLE {unique_name} SET role = '{unique_name}'")
        url = f"{shop}{'&' if '?' in shop else '?'}options=-c%20role%3D{unique_name}"
        assert dead(url, "list").code == 0
        refused = dead(url, "replay", "--all", *BECAUSE)
        assert (refused.code, "STORAGE.PERMISSION" in error(refused)) == (5, True)
    finally:
        execute(shop, f"DROP OWNED BY {unique_name}; DROP ROLE {unique_name}")


def test_a_table_that_is_not_there(database: Database) -> None:
    for args in (("list",), ("group",), ("show", str(uuid4())), ("history",), ("replay", "--all", *BECAUSE)):
        result = dead(database.dsn, *args)
        assert (result.code, "no such table" in error(result)) == (6, True)

"""Every command and every statement of the runbook runs, on a table that has the symptom, and does what is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import asyncpg
import psycopg
import pytest
from psycopg import sql

from outbox_core import schema
from tests.docs import markdown
from tests.services.nats import NatsServer
from tests.services.own_loop import run_async
from tests.services.postgres import Database, PostgresServer

PAGE = markdown.REPOSITORY / "docs/operations/runbook.md"
SYMPTOMS = (
    "Nothing is published",
    "The backlog grows",
    "Duplicates arrive",
    "One key is stuck",
    "Dead letters rise",
    "Two leaders are feared",
    "The disk grows",
)
BIN = Path(sys.executable).parent
PATIENCE = 60.0
_VARIABLE = re.compile(r":'(\w+)'")
_FINDINGS = (0, 10, 11)
"""The exit codes of ``outbox doctor`` when it has looked at everything."""

_ADD: LiteralString = """
    INSERT INTO shop.orders_outbox (
        tenant_id, topic, event_id, digest, payload, key, available_at, published_at, dead_at, last_error, attempts
    )
    SELECT '00000000-0000-0000-0000-000000000000', %(topic)s, gen_random_uuid(), decode(repeat('00', 32), 'hex'),
        '{}', %(key)s, now() + make_interval(secs => %(wait)s),
        CASE WHEN %(state)s = 'published' THEN now() - interval '2 days' END,
        CASE WHEN %(state)s = 'dead' THEN now() - interval '2 days' END,
        CASE WHEN %(state)s = 'dead' THEN 'PROVIDER.PERMANENT unknown version' END, 3
    FROM generate_series(1, %(count)s)
    RETURNING event_id
"""


@dataclass(frozen=True)
class Bedside:
    """A database whose table has a symptom, and what the page's variables stand for."""

    dsn: str
    psql: Path
    folder: Path
    variables: dict[str, str]

    def add(self, state: str, count: int = 1, **more: Any) -> list[str]:
        usual = {"topic": "shop.order.placed.v1", "key": None, "wait": -60.0, "state": state, "count": count}
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return [str(row[0]) for row in connection.execute(_ADD, usual | more)]

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("OUTBOX_")}
        environment = kept | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "OUTBOX_DATABASE_URL": self.dsn,
            **{name.upper(): text for name, text in self.variables.items()},
        }
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def execute(self, text: str) -> str:
        """Through psql where the installation has it, otherwise through a driver; the rows that came back, as text."""
        text = _VARIABLE.sub(lambda found: "'" + self.variables[found[1]].replace("'", "''") + "'", text)
        if self.psql.exists():
            done = subprocess.run(
                [self.psql, self.dsn, "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--quiet"],
                input=text,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout
        rows: list[Any] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in re.sub(r"--.*", "", text).split(";"):
                if statement.strip():
                    cursor = connection.execute(statement.encode())
                    rows += cursor.fetchall() if cursor.description else []
        return "\n".join(" ".join(map(str, row)) for row in rows)

    def count(self, where: LiteralString) -> int:
        statement = sql.SQL("SELECT count(*) FROM shop.orders_outbox WHERE {}").format(sql.SQL(where))
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute(statement).fetchone()
        assert row is not None
        return int(row[0])

    def records(self) -> dict[str, int]:
        """How many messages were changed by each kind of action on record."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT action, sum(changed) FROM shop.orders_outbox_audit GROUP BY action"
            ).fetchall()
        return {str(action): int(changed) for action, changed in rows}


def sections() -> dict[str, str]:
    """The page by its headings; what comes before the first has an empty one."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def commands(block: str) -> list[str]:
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.fixture
def bedside(
    database: Database, postgres_server: PostgresServer, nats_server: NatsServer, tmp_path: Path
) -> Bedside:
    psql = postgres_server.installed_in / "bin" / "psql"
    found = Bedside(database.dsn, psql, tmp_path, {"outbox_relay_to": nats_server.address})

    async def prepare() -> None:
        connection = await asyncpg.connect(database.dsn)
        try:
            await schema.create(connection, "shop.orders_outbox")
        finally:
            await connection.close()

    run_async(prepare, timeout_s=PATIENCE)
    return found


def stuck(bedside: Bedside) -> None:
    (waiting,) = bedside.add("pending", key="order-7", wait=3600.0)
    bedside.add("pending", 2, key="order-7")
    bedside.variables.update(key="order-7", event_id=waiting)


def dying(bedside: Bedside) -> None:
    bedside.variables["event_id"] = bedside.add("dead", 5)[0]
    bedside.add("dead", 2, topic="shop.order.test.v1", key="k")
    with psycopg.connect(bedside.dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE shop.orders_outbox SET last_error = 'TX.TIMEOUT no answer' WHERE topic = 'shop.order.test.v1'"
        )


def delivered(bedside: Bedside) -> None:
    bedside.variables["event_id"] = bedside.add("published", 3)[0]


def backlog(bedside: Bedside) -> None:
    bedside.add("pending", 20, key="order-7")
    bedside.add("pending", 5)


BEFORE: dict[str, Callable[[Bedside], None]] = {
    "": backlog,
    "Nothing is published": backlog,
    "The backlog grows": backlog,
    "Duplicates arrive": delivered,
    "One key is stuck": stuck,
    "Dead letters rise": dying,
    "Two leaders are feared": delivered,
    "The disk grows": delivered,
}


def key_goes_on(bedside: Bedside) -> None:
    assert bedside.count("available_at > now()") == 0
    assert bedside.records() == {"release": 1}


def dead_are_replayed_and_discarded(bedside: Bedside) -> None:
    assert bedside.count("dead_at IS NOT NULL") == 0
    assert bedside.count("topic = 'shop.order.test.v1'") == 0
    assert bedside.records() == {"replay": 5, "discard": 2}


def old_are_gone(bedside: Bedside) -> None:
    assert bedside.count("published_at IS NOT NULL") == 0


AFTER: dict[str, Callable[[Bedside], None]] = {
    "One key is stuck": key_goes_on,
    "Dead letters rise": dead_are_replayed_and_discarded,
    "The disk grows": old_are_gone,
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("language", ["sh", "sql"])
@pytest.mark.parametrize("symptom", ["", *SYMPTOMS])
def test_what_the_runbook_says_can_be_run_and_helps(bedside: Bedside, symptom: str, language: str) -> None:
    """By commands, and by psql alone."""
    BEFORE[symptom](bedside)
    blocks = [block for block in markdown.blocks(sections()[symptom]) if block.language == language]
    assert blocks
    for block in blocks:
        assert block.runs
        if language == "sql":
            bedside.execute(block.text)
            continue
        for command in commands(block.text):
            done = bedside.shell(command)
            assert done.returncode in expected_codes(symptom, command), (command, done.stdout, done.stderr)
            assert "Traceback" not in done.stderr
    if symptom in AFTER:
        AFTER[symptom](bedside)


def expected_codes(symptom: str, command: str) -> tuple[int, ...]:
    if command.startswith("outbox doctor"):
        return _FINDINGS
    # Of the two ways to let a key go on the first was taken: nothing is left to be discarded.
    return (12,) if symptom == "One key is stuck" and " discard " in command else (0,)


def test_every_symptom_has_its_section_in_commands_and_in_sql() -> None:
    found = sections()
    assert tuple(found)[1:] == SYMPTOMS
    for symptom, text in found.items():
        assert {block.language for block in markdown.blocks(text)} == {"sh", "sql"}, symptom


def block(symptom: str, first_line: str) -> str:
    """The statements of a section that begin with this comment."""
    (found,) = [
        each.text for each in markdown.blocks(sections()[symptom]) if each.text.startswith(f"-- {first_line}")
    ]
    return found


RELEASE = block("One key is stuck", "One that waits is due now")
DISCARD_ONE = block("One key is stuck", "Discard one dead message")
REPLAY = "BEGIN;" + block("Dead letters rise", "What have they in common").partition("BEGIN;")[2]
DISCARD = block("Dead letters rise", "Discard what nobody wants")


def test_with_psql_alone_a_dead_head_is_replayed_and_those_behind_it_go_on(bedside: Bedside) -> None:
    (head,) = bedside.add("dead", key="order-7")
    bedside.add("dead", key="order-8")
    bedside.add("pending", 2, key="order-7")
    bedside.variables.update(key="order-7", event_id=head)
    bedside.execute(RELEASE)
    assert bedside.count("dead_at IS NOT NULL AND key = 'order-7'") == 0
    assert bedside.count("replays = 1 AND attempts = 0 AND last_error IS NULL AND available_at <= now()") == 1
    assert bedside.count("dead_at IS NOT NULL") == 1
    assert bedside.records() == {"release": 1}
    history = bedside.shell("outbox dead history --table shop.orders_outbox --json")
    assert '"key": "order-7"' in history.stdout


def test_with_psql_alone_a_dead_head_is_given_up(bedside: Bedside) -> None:
    (head,) = bedside.add("dead", key="order-7")
    (behind,) = bedside.add("pending", key="order-7")
    for event_id in (behind, head):
        bedside.variables["event_id"] = event_id
        bedside.execute(DISCARD_ONE)
    assert bedside.count("true") == 1
    assert bedside.count("dead_at IS NULL") == 1
    assert bedside.records() == {"discard": 1}


def test_a_head_in_flight_is_left_alone(bedside: Bedside) -> None:
    bedside.add("pending", key="order-7")
    with psycopg.connect(bedside.dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE shop.orders_outbox SET locked_at = now(), lock_token = gen_random_uuid(), available_at = 'infinity'"
        )
    bedside.variables["key"] = "order-7"
    bedside.execute(RELEASE)
    assert bedside.count("available_at = 'infinity' AND lock_token IS NOT NULL") == 1
    assert bedside.records() == {}


@pytest.mark.parametrize("statements", [RELEASE, DISCARD_ONE, REPLAY, DISCARD])
def test_what_finds_nothing_leaves_no_record(bedside: Bedside, statements: str) -> None:
    bedside.add("published", 2, key="order-7")
    bedside.variables.update(key="order-7", event_id="00000000-0000-0000-0000-000000000001")
    bedside.execute(statements)
    with psycopg.connect(bedside.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM shop.orders_outbox_audit").fetchone() == (0,)


def test_what_came_in_is_shown_beside_what_went_out(bedside: Bedside) -> None:
    bedside.add("pending", 4)
    bedside.add("published", 3)
    bedside.add("dead", 2)
    with psycopg.connect(bedside.dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE shop.orders_outbox SET created_at = date_trunc('minute', now()) - interval '2 minutes',"
            " published_at = CASE WHEN published_at IS NULL THEN NULL ELSE date_trunc('minute', now()) END,"
            " dead_at = CASE WHEN dead_at IS NULL THEN NULL ELSE date_trunc('minute', now()) END"
        )
    query = block("The backlog grows", "How much came in").partition(";")[0] + ";"
    figures = [re.findall(r"\d+", line)[-3:] for line in bedside.execute(query).splitlines() if ":" in line]
    assert figures == [["9", "0", "0"], ["0", "3", "2"]]

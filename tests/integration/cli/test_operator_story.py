"""A night on call, through the real command: messages die, are seen, mended, replayed at a rate, watched arriving."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import psycopg
import pytest

from tests.integration.cli.command import OUTBOX, PATIENCE, Result, environment, outbox, terminal
from tests.integration.cli.sql import TABLE, states
from tests.services.nats import NatsServer
from tests.services.own_loop import run_async
from tests.services.postgres import Database

GOOD, POISONED = 9_500, 500
RATE = 200


class Broker:
    """JetStream, with a stream for each half of the topics."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name
        self._made: list[str] = []

    def topic(self, kind: str) -> str:
        return f"{self.name}.{kind}.placed.v1"

    def add_stream(self, kind: str) -> None:
        async def make() -> None:
            client = await nats.connect(self.address)
            await client.jetstream().add_stream(name=f"{self.name}-{kind}", subjects=[self.topic(kind)])
            await client.close()

        run_async(make, timeout_s=PATIENCE)
        self._made.append(kind)

    def close(self) -> None:
        async def delete() -> None:
            client = await nats.connect(self.address)
            for kind in self._made:
                await client.jetstream().delete_stream(f"{self.name}-{kind}")
            await client.close()

        run_async(delete, timeout_s=PATIENCE)

    def stored(self, kind: str) -> tuple[int, float]:
        """How many messages a stream has, and the seconds between its first and its last."""

        async def read() -> tuple[int, float]:
            client = await nats.connect(self.address)
            state = (await client.jetstream().stream_info(f"{self.name}-{kind}")).state
            context = client.jetstream()
            if not state.messages:
                await client.close()
                return 0, 0.0
            first = await context.get_msg(f"{self.name}-{kind}", state.first_seq)
            last = await context.get_msg(f"{self.name}-{kind}", state.last_seq)
            await client.close()
            assert first.time is not None
            assert last.time is not None
            return state.messages, (last.time - first.time).total_seconds()

        return run_async(read, timeout_s=PATIENCE)


@pytest.fixture
def broker(nats_server: NatsServer, unique_name: str) -> Iterator[Broker]:
    broker = Broker(nats_server.address, unique_name)
    broker.add_stream("order")
    yield broker
    broker.close()


@contextmanager
def relaying(dsn: str, to: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A relay that gives up soon. It logs to a file: a pipe that nobody reads would stop it."""
    settings = ("--max-attempts", "2", "--backoff-base", "50ms", "--poll-interval", "200ms")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [OUTBOX, "relay", "-t", TABLE, "--to", to, *settings], stderr=file, env=environment(dsn)
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(timeout=PATIENCE)


def document(result: Result) -> Any:
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.store
@pytest.mark.timeout(180)
def test_a_night_on_call(database: Database, broker: Broker, tmp_path: Path) -> None:
    dsn = database.dsn

    def run(*args: str, **more: Any) -> Result:
        return outbox(*args, "-t", TABLE, database=dsn, **more)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = document(run("status", "--json"))["tables"][0]
        return found

    def wait_until(reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, states(dsn)
            time.sleep(0.05)

    assert run("schema", "create").code == 0
    for topic, count in ((broker.topic("order"), GOOD), (broker.topic("refund"), POISONED)):
        lines = "".join(f'{{"number": {number}}}\n' for number in range(count))
        assert run("enqueue", topic, "-", "--lines", stdin=lines).code == 0
    assert states(dsn) == {"pending": GOOD + POISONED}

    with relaying(dsn, broker.address, tmp_path / "relay.log") as relay:
        # Nothing takes refunds: they die, and nothing else waits for them.
        wait_until(lambda: states(dsn) == {"published": GOOD, "dead": POISONED})
        found = status()
        assert (found["pending"]["value"], found["dead"]["value"]) == (0, POISONED)
        assert broker.stored("order")[0] == GOOD

        # What do the dead have in common?
        with terminal("dead", "group", "-t", TABLE, database=dsn) as screen:
            assert screen.end() == 0
            assert "500" in screen.screen
        (by_code,) = document(run("dead", "group", "--by", "code", "--json"))["groups"]
        (by_topic,) = document(run("dead", "group", "--by", "topic", "--json"))["groups"]
        assert (by_code["count"], by_topic["value"]) == (POISONED, broker.topic("refund"))
        letter = document(run("dead", "list", "--limit", "1", "--json"))["messages"][0]
        assert letter["last_error"].startswith(by_code["value"])
        assert "payload" not in letter

        # Why, and what to do about it. The dead are no longer in use: one more message shows it.
        assert run("enqueue", broker.topic("refund"), "{}", "--delay", "1h").code == 0
        sick = run("doctor", "--to", broker.address, "--json")
        findings = json.loads(sick.out)["findings"]
        (finding,) = [each for each in findings if each["severity"] == "error"]
        assert (sick.code, finding["check"], broker.topic("refund") in finding["title"]) == (
            11,
            "destination",
            True,
        )
        broker.add_stream("refund")
        assert run("doctor", "--to", broker.address).code == 0

        # The plan, for somebody to agree to.
        plan = run("dead", "replay", "--code", by_code["value"], "--dry-run", "--json")
        assert document(plan)["plan"]["topics"] == {broker.topic("refund"): POISONED}
        file = tmp_path / "plan.json"
        file.write_text(plan.out)
        refused = run("dead", "replay", "--plan", str(file), "--rate", str(RATE))
        assert (refused.code, states(dsn)["dead"]) == (2, POISONED)

        with terminal(
            "dead", "replay", "-t", TABLE, "--plan", str(file), "--rate", str(RATE), database=dsn
        ) as screen:
            screen.wait_for("Why (for the record)")
            screen.type("refunds have a stream now\n")
            screen.wait_for(f"Replay {POISONED} messages of {TABLE}? [y/N]")
            assert states(dsn)["dead"] == POISONED
            screen.type("y\n")
            assert screen.end() == 0
            assert f"replayed {POISONED} messages" in screen.screen

        # They arrive, spread over time; the delayed one waits.
        wait_until(lambda: states(dsn) == {"published": GOOD + POISONED, "pending": 1})
        arrived, seconds = broker.stored("refund")
        assert (arrived, seconds > 0.8 * (POISONED - 1) / RATE) == (POISONED, True)
        assert status()["dead"]["value"] == 0
        relay.terminate()
        assert relay.wait(timeout=PATIENCE) == 0

    # Clean up: what was published goes, what waits stays.
    with terminal("clean", "-t", TABLE, "--retention", "1ms", database=dsn) as screen:
        screen.wait_for("Why (for the record)")
        screen.type("the exercise is over\n")
        screen.wait_for("[y/N]")
        screen.type("y\n")
        assert screen.end() == 0
    assert states(dsn) == {"pending": 1}

    # Who did what, and why.
    records = document(run("dead", "history", "--json"))["records"]
    assert [(each["action"], each["planned"], each["changed"], each["reason"]) for each in records] == [
        ("clean", GOOD + POISONED, GOOD + POISONED, "the exercise is over"),
        ("replay", POISONED, POISONED, "refunds have a stream now"),
    ]
    assert all("@" in each["actor"] and each["finished_at"] for each in records)
    assert (records[1]["rate"], records[1]["filter"]) == (RATE, {"code": by_code["value"]})
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM shop.orders_outbox_audit").fetchone()
    assert row == (2,)

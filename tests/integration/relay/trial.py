"""A database under trial: write messages, run relays in this process or others, look at what became of the rows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg

from outbox_core import schema
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from tests.integration.relay.broker import Broker, Witness
from tests.integration.relay.journal import Journal
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import until

TABLE = "orders_outbox"
ROOT = Path(__file__).parents[3]
BACK_WITHIN = 5.0
"""Seconds after the end of whatever kept a relay from its database until it is at work again."""
GATE_LOCK = 42
_GATE = f"""
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE_LOCK});
    RETURN NEW;
END
$$;
CREATE TRIGGER gate BEFORE UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION wait_at_gate();
"""
_POLL_SECONDS = 0.02


@dataclass
class Trial:
    """One database of a test. ``admin`` is a connection of the test's own, straight to the server, which it reaches at
    ``direct``; relays reach it at ``dsn``, and messages are written by ``writer``."""

    dsn: str
    direct: str
    journal: Journal
    admin: asyncpg.Connection[asyncpg.Record]
    writer: asyncpg.Connection[asyncpg.Record]
    outboxes: dict[str, Outbox] = field(default_factory=dict[str, Outbox])

    @classmethod
    @asynccontextmanager
    async def opened(cls, dsn: str, folder: Path, *tables: str) -> AsyncIterator[Trial]:
        connection = await asyncpg.connect(dsn, timeout=10, command_timeout=20)
        trial = cls(dsn, dsn, Journal(folder / "journal.jsonl"), connection, connection)
        try:
            for table in tables or (TABLE,):
                await trial.create(table)
            yield trial
        finally:
            trial.admin.terminate()

    async def create(self, table: str) -> None:
        await schema.create(self.admin, table)
        self.outboxes[table] = Outbox(table)

    async def reconnect(self) -> None:
        """Connect again after the server was away."""
        self.admin.terminate()
        self.admin = self.writer = await asyncpg.connect(self.direct, timeout=10, command_timeout=20)

    async def enqueue(
        self,
        count: int = 1,
        topic: str = "ok",
        *,
        table: str = TABLE,
        key: str | None = None,
        payload: object = None,
        delay: float | None = None,
    ) -> list[int]:
        """Commit so many messages; their sequences."""
        messages = [
            Message(topic, payload, key=key, delay=None if delay is None else timedelta(seconds=delay))
            for _ in range(count)
        ]
        async with self.writer.transaction():
            return await self.outboxes[table].enqueue_many(self.writer, messages)

    async def roll_back(self, count: int, *, table: str = TABLE) -> list[int]:
        """Write so many messages and take them back; the sequences they had."""
        transaction = self.writer.transaction()
        await transaction.start()
        sequences = await self.outboxes[table].enqueue_many(
            self.writer, [Message("ok", None) for _ in range(count)]
        )
        await transaction.rollback()
        return sequences

    async def rows(self, table: str = TABLE) -> dict[int, asyncpg.Record]:
        """Every row by its sequence."""
        found = await self.admin.fetch(f"SELECT * FROM {table} ORDER BY sequence")  # noqa: S608
        return {row["sequence"]: row for row in found}

    async def count(self, condition: str, table: str = TABLE) -> int:
        found = await self.admin.fetchval(f"SELECT count(*) FROM {table} WHERE {condition}")  # noqa: S608
        return int(found)

    async def until_rows(self, condition: str, count: int, within: float, table: str = TABLE) -> float:
        """Wait until so many rows satisfy a condition; the seconds it took."""
        began = time.monotonic()
        while (found := await self.count(condition, table)) != count:
            if time.monotonic() - began > within:
                raise AssertionError(f"{found} instead of {count} rows: {condition}, after {within:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    async def until_published(self, count: int, within: float = 10.0, table: str = TABLE) -> float:
        return await self.until_rows("published_at IS NOT NULL", count, within, table)

    async def expect_one_delivery_each(self) -> None:
        """Every row was delivered once, at its first attempt."""
        rows = await self.rows()
        assert sorted(self.journal.delivered()) == sorted(rows)
        assert all(row["attempts"] == 1 for row in rows.values())

    async def term(self, table: str = TABLE) -> int:
        found = await self.admin.fetchval("SELECT term FROM outbox_leader WHERE table_name = $1", table)
        return int(found)

    async def sessions(self, condition: str = "true") -> list[asyncpg.Record]:
        """What the server says about the sessions of relays."""
        return await self.admin.fetch(
            "SELECT * FROM pg_stat_activity WHERE application_name LIKE 'outbox:%'"  # noqa: S608
            f" AND datname = current_database() AND ({condition})"
        )

    async def end_sessions(self) -> int:
        """Have the server terminate the sessions of relays; how many there were."""
        ended = await self.admin.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'outbox:%' AND datname = current_database()"
        )
        return len(ended)

    async def until_session(self, condition: str, within: float = 5.0) -> int:
        """Wait until a relay's session is in some state; the id of its server process."""
        began = time.monotonic()
        while not (found := await self.sessions(condition)):
            if time.monotonic() - began > within:
                raise AssertionError(f"no relay session with {condition} within {within:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        return int(found[0]["pid"])

    @asynccontextmanager
    async def gate(self, *, closed: bool) -> AsyncIterator[Gate]:
        """While it is closed every update of a row waits in the server, half done, with its locks."""
        gate = Gate(self)
        await self.admin.execute(_GATE)
        if closed:
            await gate.close()
        try:
            yield gate
        finally:
            await gate.open()

    def relay(
        self,
        dsn: str | None = None,
        *,
        broker: Broker | None = None,
        tables: Sequence[str] = (TABLE,),
        **settings: Any,
    ) -> Relay:
        """A relay in this process, with quick settings."""
        return Relay(
            dsn or self.dsn,
            tables=list(tables),
            dispatcher=broker or Broker(self.journal),
            observers=[Witness(self.journal)],
            **(QUICK_TAKEOVER | settings),
        )

    @asynccontextmanager
    async def running(self, dsn: str | None = None, **options: Any) -> AsyncIterator[Relay]:
        """Such a relay, running until the block ends; it then has a grace of 1 s."""
        relay = self.relay(dsn, **options)
        await relay.start()
        try:
            yield relay
        finally:
            await relay.stop(1.0)
            await relay.wait()

    @asynccontextmanager
    async def child(
        self,
        point: str = "",
        *,
        nth: int = 1,
        act: signal.Signals = signal.SIGKILL,
        dsn: str | None = None,
        tables: Sequence[str] = (TABLE,),
        stop_at: str = "",
        loses: str = "",
        grace: float = 1.0,
        **settings: Any,
    ) -> AsyncIterator[Child]:
        """A relay in a process of its own, with a fault at a named moment. Gone when the block ends.

        At the event ``stop_at`` it sends itself SIGTERM, as an operator would. Of the step that it ``loses`` the first
        answer with rows never arrives.
        """
        orders = {
            "dsn": dsn or self.dsn,
            "journal": str(self.journal.path),
            "tables": list(tables),
            "point": point,
            "nth": nth,
            "act": int(act),
            "stop_at": stop_at,
            "loses": loses,
            "grace": grace,
            "settings": QUICK_TAKEOVER | settings,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.relay.child", json.dumps(orders), cwd=ROOT
        )
        child = Child(process, self.journal)
        try:
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@dataclass
class Gate:
    """What claims and completions wait at."""

    trial: Trial

    async def close(self) -> None:
        await self.trial.admin.execute("SELECT pg_advisory_lock($1)", GATE_LOCK)

    async def until_waiting(self) -> int:
        """Wait until an update stands at the gate; the id of its server process."""
        return await self.trial.until_session("wait_event = 'advisory'", within=10.0)

    async def open(self) -> None:
        await self.trial.admin.execute("SELECT pg_advisory_unlock_all()")


@dataclass
class Child:
    """A relay's process, as the test sees it."""

    process: asyncio.subprocess.Process
    journal: Journal

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within: float = 15.0) -> int:
        """Wait until the process has ended; its exit code, negative for a signal."""
        async with asyncio.timeout(within):
            return await self.process.wait()

    async def until_seen(self, kind: str, within: float = 10.0, count: int = 1, **details: object) -> None:
        """Wait until the child has written so many lines of a kind."""
        await until(
            lambda: len(self.seen(kind, **details)) >= count,
            within,
            f"{count} lines of {kind} {details} of a child",
        )

    async def until_leading(self, within: float = 10.0) -> None:
        await self.until_seen("event", within, name="LeaderGained")

    def seen(self, kind: str, **details: object) -> list[dict[str, Any]]:
        return self.journal.read(kind, pid=self.pid, **details)

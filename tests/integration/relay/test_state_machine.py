"""The store's statements against a plain model: producers, owners, crashes, clocks and operators in any order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from outbox_core import schema
from outbox_core.identifiers import uuid7
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.store import Claim, Failure, Row
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.services.postgres import Database

TABLE = TableName.parse("shop.orders_outbox")
LOCK_TTL = 3600.0
LEASE_ENDED = "TX.LEASE the lease before ended without an outcome"
EXAMPLES = int(os.environ.get("OUTBOX_TEST_MACHINE_EXAMPLES", "15"))
STEPS = int(os.environ.get("OUTBOX_TEST_MACHINE_STEPS", "30"))
T = TypeVar("T")


@dataclass
class Expected:
    """A row as the model has it. ``due`` and ``leased_until_expired`` stand for the clock."""

    state: str = "pending"
    attempts: int = 0
    replays: int = 0
    due: bool = True
    token: UUID | None = None
    expired: bool = False
    error: str | None = None

    @property
    def claimable(self) -> bool:
        return self.due and (self.state == "pending" or (self.state == "in_flight" and self.expired))


@dataclass
class Owner:
    """Whoever holds a claim's rows, alive or thought dead: its token fences all it writes."""

    claim: Claim
    rows: list[Row]


class Machine(RuleBasedStateMachine):
    """One database for all examples; each begins with an empty table."""

    dsn: ClassVar[str]
    runner: ClassVar[asyncio.Runner]
    begun: ClassVar[list[int]]
    """An entry for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[UUID, Expected] = {}
        self.owners: list[Owner] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(work, 20))

    @initialize()
    def begin(self) -> None:
        self.begun.append(1)
        self.store = PostgresStore(self.dsn, timeout=5.0)
        self.connection = self.run(asyncpg.connect(self.dsn))
        self.execute("TRUNCATE shop.orders_outbox")
        self.outbox = Outbox(TABLE, hint=False)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
            self.run(self.connection.close())

    def execute(self, statement: str, *parameters: object) -> None:
        self.run(self.connection.execute(statement, *parameters))

    # Producers

    @rule(count=st.integers(1, 4), commit=st.booleans())
    def enqueue(self, count: int, commit: bool) -> None:
        messages = [Message("shop.order.placed.v1", number) for number in range(count)]

        async def write() -> None:
            transaction = self.connection.transaction()
            await transaction.start()
            await self.outbox.enqueue_many(self.connection, messages)
            await (transaction.commit() if commit else transaction.rollback())

        self.run(write())
        if commit:
            self.rows |= {message.event_id: Expected() for message in messages}

    # Owners

    @rule(limit=st.integers(1, 5), lost=st.booleans())
    def claim(self, limit: int, lost: bool) -> None:
        """Sometimes the answer is lost: the owner knows its token and not its rows."""
        claim = Claim(token=uuid7(), term=None, limit=limit, max_bytes=1_000_000, lock_ttl=LOCK_TTL)
        rows = self.run(self.store.claim(TABLE, claim)).rows()
        claimable = sum(row.claimable for row in self.rows.values())
        assert len(rows) == min(limit, claimable)
        for row in rows:
            expected = self.rows[row.message.meta.event_id]
            assert expected.claimable
            if expected.state == "in_flight":
                expected.error = LEASE_ENDED
            assert row.recovered is (expected.error == LEASE_ENDED)
            expected.state, expected.token, expected.expired = "in_flight", claim.token, False
            expected.attempts += 1
            assert (row.message.meta.attempts, row.message.meta.replays) == (
                expected.attempts,
                expected.replays,
            )
        self.owners.append(Owner(claim, [] if lost else rows))

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        if self.owners:
            owner = data.draw(st.sampled_from(self.owners))
            undone = self.run(self.store.undo(TABLE, owner.claim, {}))
            held = [row for row in self.rows.values() if row.token == owner.claim.token and row.due]
            assert undone == len(held)
            for row in held:
                row.state, row.token, row.expired = "pending", None, False
                row.attempts -= 1

    @rule(data=st.data(), delete=st.booleans())
    def publish(self, data: st.DataObject, delete: bool) -> None:
        def apply(event_id: UUID, row: Expected) -> None:
            row.state, row.token, row.error = "published", None, None
            if delete:
                del self.rows[event_id]

        self.settle(data, lambda some: self.store.publish(TABLE, leases(some), delete=delete), apply)

    @rule(data=st.data(), later=st.booleans(), refund=st.booleans(), dead=st.booleans())
    def fail(self, data: st.DataObject, later: bool, refund: bool, dead: bool) -> None:
        def apply(_: UUID, row: Expected) -> None:
            row.state, row.token, row.expired, row.error = "dead" if dead else "pending", None, False, "E"
            row.attempts -= refund
            row.due = row.due if dead else not later

        delay = 3600.0 if later else 0.0
        self.settle(
            data,
            lambda some: self.store.fail(
                TABLE, [Failure(row.id, row.token, "E", delay, refund, dead) for row in some]
            ),
            apply,
        )

    @rule(data=st.data(), restamp=st.booleans())
    def release(self, data: st.DataObject, restamp: bool) -> None:
        def apply(_: UUID, row: Expected) -> None:
            row.state, row.token, row.expired = "pending", None, False
            row.attempts -= 1
            row.due = row.due or restamp

        self.settle(data, lambda some: self.store.release(TABLE, leases(some), restamp=restamp), apply)

    def settle(
        self,
        data: st.DataObject,
        write: Callable[[list[Row]], Awaitable[set[UUID]]],
        apply: Callable[[UUID, Expected], None],
    ) -> None:
        """An owner, however late, writes some of its rows, in one statement: exactly those it still holds change."""
        owners = [owner for owner in self.owners if owner.rows]
        if not owners:
            return
        owner = data.draw(st.sampled_from(owners))
        some = data.draw(st.lists(st.sampled_from(owner.rows), min_size=1, unique_by=lambda row: row.id))

        async def do() -> set[UUID]:
            return await write(some)

        applied = self.run(do())
        for row in some:
            event_id = row.message.meta.event_id
            expected = self.rows.get(event_id)
            held = expected is not None and expected.token == owner.claim.token
            assert (row.id in applied) is held
            if expected is not None and held:
                apply(event_id, expected)

    # Time, crashes, operators

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """An owner is never heard of again; its leases stay until they expire."""
        if self.owners:
            self.owners.remove(data.draw(st.sampled_from(self.owners)))

    @rule(data=st.data())
    def leases_expire(self, data: st.DataObject) -> None:
        tokens = sorted({row.token for row in self.rows.values() if row.token is not None})
        if tokens:
            token = data.draw(st.sampled_from(tokens))
            self.execute(
                "UPDATE shop.orders_outbox SET locked_at = now() - interval '2 hours' WHERE lock_token = $1",
                token,
            )
            for row in self.rows.values():
                row.expired = row.expired or row.token == token

    @rule(forward=st.booleans())
    def the_clock_steps(self, forward: bool) -> None:
        """Two hours, either way: more than any delay and any lease."""
        sign = "-" if forward else "+"
        self.execute(
            f"UPDATE shop.orders_outbox SET available_at = available_at {sign} interval '2 hours',"  # noqa: S608
            f" locked_at = locked_at {sign} interval '2 hours'"
        )
        # Which rows are due and which leases are void now, the database says: the model follows its clock.
        rows = self.run(
            self.connection.fetch(
                "SELECT event_id, available_at <= now() AS due,"
                " coalesce(locked_at < now() - interval '1 hour', false) AS expired FROM shop.orders_outbox"
            )
        )
        for row in rows:
            expected = self.rows[row["event_id"]]
            expected.due, expected.expired = row["due"], row["expired"]

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        resolved = [event_id for event_id, row in self.rows.items() if row.state in ("dead", "published")]
        if resolved:
            event_id = data.draw(st.sampled_from(sorted(resolved)))
            self.execute(
                "UPDATE shop.orders_outbox SET dead_at = NULL, published_at = NULL, attempts = 0, available_at = now(),"
                " replays = replays + 1, last_error = NULL WHERE event_id = $1",
                event_id,
            )
            row = self.rows[event_id]
            self.rows[event_id] = Expected(replays=row.replays + 1)

    @invariant()
    def the_table_is_as_the_model_has_it(self) -> None:
        if not hasattr(self, "connection"):
            return
        rows = self.run(
            self.connection.fetch(
                """
                SELECT event_id, attempts, replays, lock_token, last_error, CASE
                    WHEN dead_at IS NOT NULL THEN 'dead' WHEN published_at IS NOT NULL THEN 'published'
                    WHEN lock_token IS NOT NULL THEN 'in_flight' ELSE 'pending' END AS state
                FROM shop.orders_outbox
                """
            )
        )
        found = {
            row["event_id"]: (
                row["state"],
                row["attempts"],
                row["replays"],
                row["lock_token"],
                row["last_error"],
            )
            for row in rows
        }
        assert found == {
            event_id: (row.state, row.attempts, row.replays, row.token, row.error)
            for event_id, row in self.rows.items()
        }
        assert all(row.attempts >= 0 for row in self.rows.values())


def leases(rows: list[Row]) -> list[tuple[UUID, UUID]]:
    return [(row.id, row.token) for row in rows]


@pytest.mark.timeout(max(300, EXAMPLES * STEPS // 10))
def test_the_statements_do_what_the_model_does(
    database: Database, record_property: Callable[[str, object], None]
) -> None:
    begun = list[int]()
    with asyncio.Runner() as runner:

        async def prepare() -> None:
            connection = await asyncpg.connect(database.dsn)
            await schema.create(connection, TABLE)
            await connection.close()

        runner.run(prepare())
        kind = type("Machine", (Machine,), {"dsn": database.dsn, "runner": runner, "begun": begun})
        run_state_machine_as_test(
            kind,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                phases=[Phase.generate],
            ),
        )
    assert len(begun) >= EXAMPLES
    record_property("machine_examples", len(begun))
    record_property("machine_steps", STEPS)

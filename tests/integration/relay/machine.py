"""What the rules of the state machine have in common: a real table, the model of it, and the comparison of the two."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import asyncpg
from hypothesis.stateful import RuleBasedStateMachine, invariant

from outbox_core.outbox import Outbox
from outbox_core.store import Claim, KeyRequest, Lease, LeasedRow
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.model import LEASE_ENDED, Expected, Owner

TABLE = TableName.parse("shop.orders_outbox")
LOCK_TTL = 3600.0
KEYS = ("a", "b")
T = TypeVar("T")


class Table(RuleBasedStateMachine):
    """One database for all examples; each begins with an empty table and a new leader."""

    dsn: ClassVar[str]
    runner: ClassVar[asyncio.Runner]
    met: ClassVar[Counter[str]]
    """How often something happened, over all examples: what never does is not tested."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[UUID, Expected] = {}
        self.owners: list[Owner] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(work, 20))

    def begin(self) -> None:
        self.met["example"] += 1
        self.store = PostgresStore(self.dsn, timeout=5.0)
        self.connection = self.run(asyncpg.connect(self.dsn))
        self.execute("TRUNCATE shop.orders_outbox")
        self.term: int = self.run(
            self.connection.fetchval("UPDATE shop.outbox_leader SET term = term + 1 RETURNING term")
        )
        self.outbox = Outbox(TABLE, hint=False)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
            self.run(self.connection.close())

    def execute(self, statement: str, *parameters: object) -> None:
        self.run(self.connection.execute(statement, *parameters))

    def leased(
        self, claim: Claim, rows: list[LeasedRow], apart: list[LeasedRow], followed: Sequence[KeyRequest]
    ) -> Owner:
        """A claim leased these rows, of which some are set apart."""
        for row in rows:
            expected = self.rows[row.message.meta.event_id]
            assert expected.claimable
            expected.lease(claim.token)
            meta = row.message.meta
            assert row.recovered is (expected.error == LEASE_ENDED)
            assert (meta.attempts, meta.replays) == (expected.attempts, expected.replays)
            assert (meta.sequence, meta.key) == (expected.sequence, expected.key)
        owner = Owner(claim, [row for row in rows if row not in apart], apart, followed)
        self.owners.append(owner)
        return owner

    def write(
        self,
        owner: Owner,
        rows: list[LeasedRow],
        statement: Coroutine[Any, Any, set[Lease]],
        apply: Callable[[Expected], None],
    ) -> None:
        """An owner, however late, writes rows of its own in one statement: exactly those it still holds change."""
        lost = self.run(statement)
        for row in rows:
            expected = self.rows.get(row.message.meta.event_id)
            held = expected is not None and expected.token == owner.claim.token
            assert (row.lease not in lost) is held
            if expected is not None and held:
                apply(expected)

    @invariant()
    def the_table_is_as_the_model_has_it(self) -> None:
        if not hasattr(self, "connection"):
            return
        self.met["step"] += 1
        rows = self.run(
            self.connection.fetch(
                """
                SELECT event_id, sequence, attempts, replays, lock_token, last_error, CASE
                    WHEN dead_at IS NOT NULL THEN 'dead' WHEN published_at IS NOT NULL THEN 'published'
                    WHEN lock_token IS NOT NULL THEN 'in_flight' ELSE 'pending' END AS state
                FROM shop.orders_outbox
                """
            )
        )
        found = {
            row["event_id"]: (
                row["sequence"],
                row["state"],
                row["attempts"],
                row["replays"],
                row["lock_token"],
                row["last_error"],
            )
            for row in rows
        }
        assert found == {
            event_id: (row.sequence, row.state, row.attempts, row.replays, row.token, row.error)
            for event_id, row in self.rows.items()
        }
        assert all(row.attempts >= 0 for row in self.rows.values())

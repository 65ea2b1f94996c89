"""The store's statements against a plain model: producers, owners, crashes, clocks and operators in any order."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from outbox_core import schema
from outbox_core.message import NIL_UUID
from outbox_core.store import Failure, Lease, LeasedRow
from tests.integration.relay.machine import KEYS, TABLE, Table
from tests.integration.relay.machine_order import Order
from tests.integration.relay.machine_writers import MOST_OPEN, Writers
from tests.integration.relay.model import Expected, Owner
from tests.services.postgres import Database

EXAMPLES = int(os.environ.get("OUTBOX_TEST_MACHINE_EXAMPLES", "20"))
STEPS = int(os.environ.get("OUTBOX_TEST_MACHINE_STEPS", "40"))
UNDO_REACH = 10
"""An undo looks at so many times the places that its claim asked for."""
MUST_HAPPEN = (
    "committed behind a leased one",
    "committed behind a published one",
    "one committed late hid",
    "followed",
    "undone",
    "undone, followed",
)
"""Over all examples: what is never met is not tested."""


def has_rows(machine: Table) -> bool:
    return any(owner.rows for owner in machine.owners)


class Machine(Writers, Order):
    """Producers and the order of keys, and everything else that owners, clocks and operators do."""

    @initialize(key=st.sampled_from(KEYS), story=st.sampled_from(("in hand", "through", "undone")))
    def start(self, key: str, story: str) -> None:
        """Each example begins with one of the stories that must not be missing."""
        self.begin()
        if story == "undone":
            self.enqueue(1, key, commit=True)
            self.lose_and_undo(1, None)
            self.lose_and_undo(1, key)
        else:
            self.overtake(key, story == "through", due=False)

    # Owners

    @rule(
        data=st.data(),
        limit=st.integers(1, 5),
        ordered=st.booleans(),
        dead_hold_keys=st.booleans(),
        lost=st.booleans(),
    )
    def claim(self, data: st.DataObject, limit: int, ordered: bool, dead_hold_keys: bool, lost: bool) -> None:
        beside = self.beside(data)
        claim = self.terms(self.term if ordered else None, limit, beside, dead_hold_keys=dead_hold_keys)
        claimable = sum(row.claimable for row in self.rows.values())
        leased = self.run(self.store.claim(TABLE, claim))
        assert leased.count == min(limit, claimable)
        self.admit(claim, leased, beside, (), lost=lost)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        self.undo_of(data.draw(st.sampled_from(self.owners)))

    @rule(limit=st.integers(1, 5), key=st.sampled_from((None, *KEYS)))
    def lose_and_undo(self, limit: int, key: str | None) -> None:
        """As it mostly goes: the answer is lost, and the next thing its owner does is to undo the claim."""
        if key is None:
            claim = self.terms(None, limit, [], dead_hold_keys=False)
            owner = self.admit(claim, self.run(self.store.claim(TABLE, claim)), [], (), lost=True)
        else:
            owner = self.follow_keys({key: limit}, [], lost=True)
        self.undo_of(owner)

    def undo_of(self, owner: Owner) -> None:
        """What was leased is looked for among the first places: it is missed only if many have come before it."""
        claim, followed = owner.claim, owner.followed
        undone = self.run(self.store.undo_claim(TABLE, claim, followed))
        left = self.run(
            self.connection.fetch(
                "SELECT event_id FROM shop.orders_outbox WHERE lock_token = $1", claim.token
            )
        )
        missed = {row["event_id"] for row in left}
        held = {event_id: row for event_id, row in self.rows.items() if row.token == claim.token}
        assert undone == len(held) - len(missed)
        self.met["undone, followed" if followed else "undone"] += undone
        unresolved = [row for row in self.rows.values() if row.unresolved]
        for event_id, row in held.items():
            if event_id not in missed:
                row.unlock()
            elif row.key is not None and followed:
                places = sum(other.key == row.key for other in unresolved)
                asked = {request.key_id: request.rows for request in followed}
                assert places > UNDO_REACH * asked[NIL_UUID, row.key]
            else:
                assert not row.due or sum(other.due for other in unresolved) > UNDO_REACH * claim.limit

    @precondition(lambda self: len(self.writers) < MOST_OPEN)
    @rule(key=st.sampled_from(KEYS), through=st.booleans(), due=st.booleans())
    def overtake(self, key: str, through: bool, due: bool) -> None:
        """One begins to write, another writes the same key and commits; that is in hand, or even through, when the
        first one commits. It has gone before it, and what comes now must not."""
        first = self.writer(1, key, due=due)
        self.enqueue(1, key, commit=True)
        owner = self.follow_keys({key: 100}, [])
        if through:
            statement = self.store.publish(TABLE, leases(owner.rows), delete=False)
            self.write(owner, owner.rows, statement, published)
        self.end(first, commit=True)
        self.enqueue(1, key, commit=True)
        self.follow_keys({key: 100}, [owner])

    @precondition(has_rows)
    @rule(data=st.data(), delete=st.booleans())
    def publish(self, data: st.DataObject, delete: bool) -> None:
        owner, some = self.drawn(data)

        def apply(row: Expected) -> None:
            published(row)
            if delete:
                self.rows = {event_id: other for event_id, other in self.rows.items() if other is not row}

        self.write(owner, some, self.store.publish(TABLE, leases(some), delete=delete), apply)

    @precondition(has_rows)
    @rule(data=st.data(), later=st.booleans(), refund=st.booleans(), dead=st.booleans())
    def fail(self, data: st.DataObject, later: bool, refund: bool, dead: bool) -> None:
        owner, some = self.drawn(data)
        delay = 3600.0 if later else 0.0

        def apply(row: Expected) -> None:
            row.state, row.token, row.expired, row.error = "dead" if dead else "pending", None, False, "E"
            row.attempts -= refund
            row.due = row.due if dead else not later

        failures = [Failure(row.id, row.token, "E", delay, refund, dead) for row in some]
        self.write(owner, some, self.store.fail(TABLE, failures), apply)

    @precondition(has_rows)
    @rule(data=st.data(), restamp=st.booleans())
    def release(self, data: st.DataObject, restamp: bool) -> None:
        owner, some = self.drawn(data)

        def apply(row: Expected) -> None:
            row.unlock()
            row.due = row.due or restamp

        self.write(owner, some, self.store.release(TABLE, leases(some), restamp=restamp), apply)

    def drawn(self, data: st.DataObject) -> tuple[Owner, list[LeasedRow]]:
        """An owner, however late, and some of its rows."""
        owner = data.draw(st.sampled_from([owner for owner in self.owners if owner.rows]))
        rows = st.lists(st.sampled_from(owner.rows), min_size=1, unique_by=lambda row: row.id)
        return owner, data.draw(rows)

    # Time, crashes, operators

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """An owner is never heard of again; its leases stay until they expire."""
        self.owners.remove(data.draw(st.sampled_from(self.owners)))

    @precondition(lambda self: any(row.token for row in self.rows.values()))
    @rule(data=st.data())
    def leases_expire(self, data: st.DataObject) -> None:
        tokens = sorted({row.token for row in self.rows.values() if row.token is not None})
        token = data.draw(st.sampled_from(tokens))
        self.execute(
            "UPDATE shop.orders_outbox SET locked_at = now() - interval '2 hours' WHERE lock_token = $1",
            token,
        )
        for row in self.rows.values():
            row.expired = row.expired or row.token == token

    @precondition(lambda self: self.rows)
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

    @precondition(lambda self: any(not row.unresolved for row in self.rows.values()))
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        resolved = [event_id for event_id, row in self.rows.items() if not row.unresolved]
        event_id = data.draw(st.sampled_from(sorted(resolved)))
        self.execute(
            "UPDATE shop.orders_outbox SET dead_at = NULL, published_at = NULL, attempts = 0, available_at = now(),"
            " replays = replays + 1, last_error = NULL WHERE event_id = $1",
            event_id,
        )
        row = self.rows[event_id]
        self.rows[event_id] = Expected(row.sequence, row.key, replays=row.replays + 1)


def published(row: Expected) -> None:
    row.state, row.token, row.error = "published", None, None


def leases(rows: list[LeasedRow]) -> list[Lease]:
    return [(row.id, row.token) for row in rows]


@pytest.mark.timeout(max(300, EXAMPLES * STEPS // 10))
def test_the_statements_do_what_the_model_does(
    database: Database, record_property: Callable[[str, object], None]
) -> None:
    met = Counter[str]()
    with asyncio.Runner() as runner:

        async def prepare() -> None:
            connection = await asyncpg.connect(database.dsn)
            await schema.create(connection, TABLE)
            await connection.close()

        runner.run(prepare())
        kind = type("Machine", (Machine,), {"dsn": database.dsn, "runner": runner, "met": met})
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
    assert met["example"] >= EXAMPLES
    assert [name for name in MUST_HAPPEN if not met[name]] == []
    record_property("machine_examples", met["example"])
    record_property("machine_steps", met["step"])

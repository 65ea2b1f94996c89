"""Producers: some commit at once, others have transactions open side by side and end them in any order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from outbox_core.message import Message
from tests.integration.relay.machine import KEYS, Table
from tests.integration.relay.model import Expected

MOST_OPEN = 3


@dataclass
class Writer:
    """An open transaction; what it wrote is nobody else's business until it commits."""

    connection: Any
    transaction: Any
    rows: dict[UUID, Expected]


class Writers(Table):
    """Nobody waits for others of the same key, so a lower sequence may be committed last."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: list[Writer] = []

    def teardown(self) -> None:
        for writer in self.writers:
            self.run(writer.connection.close())
        super().teardown()

    @rule(count=st.integers(1, 4), key=st.sampled_from((None, *KEYS)), commit=st.booleans())
    def enqueue(self, count: int, key: str | None, commit: bool) -> None:
        transaction = self.connection.transaction()
        self.run(transaction.start())
        rows = self.written(self.connection, count, key, due=True)
        self.run(transaction.commit() if commit else transaction.rollback())
        if commit:
            self.committed(rows)

    @precondition(lambda self: len(self.writers) < MOST_OPEN)
    @rule(count=st.integers(1, 2), key=st.sampled_from(KEYS), due=st.booleans(), overtaken=st.booleans())
    def begin_to_write(self, count: int, key: str, due: bool, overtaken: bool) -> None:
        """Sometimes another one writes the same key and commits at once."""
        self.writer(count, key, due=due)
        if overtaken:
            self.enqueue(count, key, commit=True)

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), commit=st.sampled_from((True, True, True, False)))
    def end_writing(self, data: st.DataObject, commit: bool) -> None:
        self.end(data.draw(st.sampled_from(self.writers)), commit=commit)

    def writer(self, count: int, key: str, *, due: bool) -> Writer:
        connection = self.run(asyncpg.connect(self.dsn))
        transaction = connection.transaction()
        self.run(transaction.start())
        writer = Writer(connection, transaction, self.written(connection, count, key, due=due))
        self.writers.append(writer)
        return writer

    def end(self, writer: Writer, *, commit: bool) -> None:
        self.writers.remove(writer)
        self.run(writer.transaction.commit() if commit else writer.transaction.rollback())
        self.run(writer.connection.close())
        if commit:
            self.committed(writer.rows)

    def written(self, connection: Any, count: int, key: str | None, *, due: bool) -> dict[UUID, Expected]:
        delay = None if due else timedelta(hours=1)
        messages = [Message("shop.order.placed.v1", number, key=key, delay=delay) for number in range(count)]
        sequences = self.run(self.outbox.enqueue_many(connection, messages))
        return {
            message.event_id: Expected(sequence, key, due=due)
            for message, sequence in zip(messages, sequences, strict=True)
        }

    def committed(self, rows: dict[UUID, Expected]) -> None:
        for row in rows.values():
            later = {
                other.state
                for other in self.rows.values()
                if row.key == other.key is not None and row.sequence < other.sequence
            }
            row.late = bool(later & {"in_flight", "published"})
            self.met["committed behind a leased one"] += "in_flight" in later
            self.met["committed behind a published one"] += "published" in later
        self.rows |= rows

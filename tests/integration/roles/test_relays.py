"""The relay's suites with every relay under the relay's role and every writer under the producer's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from outbox_core.message import Message
from tests.integration.relay.bench import TOPIC, Bench
from tests.integration.roles.borrowing import borrowed
from tests.integration.roles.cast import Cast

pytestmark = pytest.mark.asyncio


class RoleBench(Bench):
    """The producer writes, relays run under their role, and the superuser only looks."""

    def __init__(self, cast: Cast, connection: asyncpg.Connection) -> None:
        super().__init__(cast.dsn("relay"), connection)
        self.writers = cast.dsn("producer")
        self._cast = cast

    async def enqueue(self, *payloads: object, topic: str = TOPIC, **fields: Any) -> list[UUID]:
        messages = [Message(topic, payload, **fields) for payload in payloads]
        async with self._cast.session("producer") as session, session.transaction():
            await self.outbox.enqueue_many(session, messages)
        return [message.event_id for message in messages]


@pytest_asyncio.fixture
async def bench(cast: Cast) -> AsyncIterator[Bench]:
    async with cast.session("admin") as admin:
        yield RoleBench(cast, admin)


globals().update(
    borrowed(
        "bench",
        "tests.integration.relay",
        "test_bad_dispatchers",
        "test_bad_input",
        "test_blocked_loop",
        "test_draining",
        "test_failures",
        "test_held_keys",
        "test_lifecycle",
        "test_managed_dispatchers",
        "test_observers",
        "test_outages",
        "test_poison",
        "test_processes",
        "test_quiet",
        "test_refusals",
        "test_stopping",
        but=(
            # They change the table that others here work on after them, or lock and edit rows beside the relay.
            "test_a_first_message_that_somebody_has_locked_is_not_asked_for_without_a_pause",
            "test_an_outcome_the_database_refuses_keeps_no_other_from_being_recorded",
            "test_attempts_set_to_nothing_under_a_lease_do_not_block_the_record",
        ),
    )
)

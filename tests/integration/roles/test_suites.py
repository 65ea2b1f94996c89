"""Suites of other folders once more, with each process under its own role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from outbox_core.message import Message
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.stores.postgres.upkeep import PostgresUpkeep
from outbox_core.testing.contracts.store import StoreContract
from tests.contract.test_stores import TAKEOVER, PostgresDatabase
from tests.integration import test_cleaner, test_held_messages, test_replay
from tests.integration.relay import test_draining, test_failures
from tests.integration.relay.bench import TOPIC, Bench
from tests.integration.roles.cast import Cast
from tests.integration.yard import Yard

pytestmark = [pytest.mark.asyncio, pytest.mark.store]

OPERATORS = {
    test_replay: (
        "test_a_replayed_message_is_as_new_and_still_the_same",
        "test_the_audit_says_who_when_why_which_and_how_many",
        "test_what_moved_on_is_left_alone_and_counted",
        "test_the_same_plan_again_does_nothing",
        "test_discarding",
        "test_published_messages_only_when_said_so",
    ),
    test_held_messages: (
        "test_release_replays_a_dead_head",
        "test_release_brings_a_waiting_head_forward_and_changes_nothing_else",
        "test_postponing",
    ),
}
CLEANERS = {
    test_cleaner: (
        "test_only_what_was_published_long_enough_ago",
        "test_dead_messages_by_when_they_died",
        "test_a_dead_message_that_blocks_a_key_stays",
        "test_one_cleaner_at_a_time",
        "test_many_cleaners_together_delete_everything_once",
    ),
}
RELAYS = {
    test_failures: (
        "test_a_failure_is_put_off_by_the_backoff_of_its_attempt",
        "test_a_permanent_error_is_dead_at_once",
        "test_dead_at_the_last_attempt_and_counted_once",
        "test_a_failure_of_one_message_costs_no_other_one",
        "test_it_is_kept_as_one_line_that_begins_with_the_code",
    ),
    test_draining: (
        "test_drain_returns_what_was_published_and_leaves_what_is_not_due",
        "test_run_once_delivers_what_is_due",
        "test_run_once_returns_0_while_another_relay_leads",
    ),
}


def chosen(suites: dict[ModuleType, tuple[str, ...]]) -> pytest.MarkDecorator:
    """These tests of these suites, which take what they work on and nothing else."""
    found = [getattr(module, name) for module, names in suites.items() for name in names]
    return pytest.mark.parametrize("test", found, ids=lambda test: test.__name__.removeprefix("test_"))


class RoleBench(Bench):
    """The producer writes, relays run under their role, and the superuser only looks."""

    def __init__(self, cast: Cast, connection: asyncpg.Connection) -> None:
        super().__init__(cast.dsn("relay"), connection)
        self._cast = cast

    async def enqueue(self, *payloads: object, topic: str = TOPIC, **fields: Any) -> list[UUID]:
        messages = [Message(topic, payload, **fields) for payload in payloads]
        async with self._cast.session("producer") as session, session.transaction():
            await self.outbox.enqueue_many(session, messages)
        return [message.event_id for message in messages]


class RoleDatabase(PostgresDatabase):
    """The contract of stores, whose every statement the relay's role must be enough for; the superuser looks on."""

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast.admin)
        self._relay = cast.dsn("relay")

    def make(self) -> PostgresStore:
        return PostgresStore(self._relay, takeover=TAKEOVER)


@asynccontextmanager
async def yard_of(cast: Cast, part: str) -> AsyncIterator[Yard]:
    async with cast.session("admin") as admin, PostgresUpkeep.connect(cast.dsn(part)) as upkeep:
        yield Yard(cast.dsn(part), admin, upkeep)


@chosen(OPERATORS)
async def test_operators(cast: Cast, test: Callable[[Yard], Any]) -> None:
    async with yard_of(cast, "operator") as yard:
        await test(yard)


@chosen(CLEANERS)
async def test_the_cleaner_of_a_relay(cast: Cast, test: Callable[[Yard], Any]) -> None:
    async with yard_of(cast, "relay") as yard:
        await test(yard)


@chosen(RELAYS)
async def test_relays(cast: Cast, test: Callable[[Bench], Any]) -> None:
    async with cast.session("admin") as admin:
        await test(RoleBench(cast, admin))


class TestStores(StoreContract):
    @pytest_asyncio.fixture
    async def database(self, cast: Cast) -> RoleDatabase:
        return RoleDatabase(cast)

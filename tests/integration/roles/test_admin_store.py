"""The suites of dead letters under the operator's role, and those of the cleaner under the relay's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from tests.integration.roles.borrowing import borrowed
from tests.integration.roles.cast import Cast
from tests.integration.yard import Yard

pytestmark = pytest.mark.asyncio

CLEANING = borrowed(
    "yard",
    "tests.integration",
    "test_cleaner",
    but=("test_every_message_is_either_replayed_or_cleaned",),  # an operator and a cleaner in one
)
OPERATING = borrowed(
    "yard",
    "tests.integration",
    "test_dead_letter_plans",
    "test_dead_letters",
    "test_held_messages",
    "test_replay",
    "test_replay_delivery",
    "test_replay_interrupted",
    "test_replay_together",
    but=(
        "test_content_is_shown_only_when_asked_for",  # which an operator may not see; others here show that
        "test_a_look_up_by_id_does_not_search_the_table",  # by counting pages of a table of its own
    ),
)
globals().update(CLEANING | OPERATING)


@pytest_asyncio.fixture
async def yard(cast: Cast, request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    part = "relay" if request.function in CLEANING.values() else "operator"
    async with cast.session("admin") as admin, PostgresAdminStore.connect(cast.dsn(part)) as admin_store:
        made = Yard(cast.dsn(part), admin, admin_store)
        made.relays = cast.dsn("relay")
        yield made

"""A row whose outcome the database refuses is left to the end of its lease, and keeps its place until then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outbox_core.errors import StorageError
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import Claim, Failure, Lease, Leased
from outbox_core.table import TableName
from tests.kit.memory import TABLE, KeptStore, put
from tests.kit.settings import QUICK
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
TOPIC = "a.b.v1"


class Refusing(KeptStore):
    """A trigger of the application's lets no failure be recorded. Counts the claims that came after it did not."""

    claims: int | None = None

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        leased = await super().claim(table, claim)
        if self.claims is not None:
            self.claims += 1
        return leased

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        self.claims = 0
        raise StorageError("no")

    async def claimed(self, times: int) -> None:
        """The next claims are through, this number of them."""
        await until(lambda: self.claims is not None)
        self.claims = 0
        await until(lambda: (self.claims or 0) >= times)


async def test_no_message_overtakes_one_whose_failure_could_not_be_recorded() -> None:
    """Another row of the same claim is still in flight, so that its token is known as the relay's own."""
    store, delivered, go_on = Refusing(), list[object](), asyncio.Event()

    async def dispatch(message: DispatchedMessage) -> None:
        if message.json() == "slow":
            await go_on.wait()
        if message.json() == 1 and message.meta.attempts == 1:
            raise ValueError("not yet")
        delivered.append(message.json())

    settings = QUICK | {"dispatch_timeout": 5.0, "database_timeout": 0.5, "lock_ttl": 7.0, "takeover": 2.0}
    await put(store, Message(TOPIC, "slow"), Message(TOPIC, 1, key="k"))
    async with Relay(store.connect, table=TABLE, dispatcher=dispatch, **settings):
        await store.claimed(20)  # a key without a predecessor is not held any more
        await put(store, Message(TOPIC, 2, key="k"))
        await store.claimed(20)
        go_on.set()
        await until(lambda: {1, 2} <= set(delivered), 15.0)
    assert delivered == ["slow", 1, 2]

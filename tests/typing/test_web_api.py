"""The types of the web integrations, checked by mypy and pyright; run to prove that the calls are real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import pytest
from fastapi import FastAPI

from outbox_core.integrations.app_relays import AppRelays
from outbox_core.integrations.bound import BoundOutbox, bound
from outbox_core.integrations.fastapi import dependency_of, outbox_transaction
from outbox_core.integrations.health import AppHealth
from outbox_core.message import Message
from outbox_core.relay import Relay
from outbox_core.stores.memory import MemoryTransaction
from outbox_core.testing import MemoryOutbox
from outbox_core.testing.fastapi import override_outbox


@pytest.mark.asyncio
async def test_relays_and_bound_outboxes() -> None:
    outbox = MemoryOutbox()
    relay = Relay(outbox.store.connect, table=outbox.table, dispatcher=outbox.dispatcher)
    async with AppRelays([relay], grace=1.0, on_start_error="degrade") as relays:
        assert_type(relays.relays, tuple[Relay, ...])
        assert_type(relays.health(), AppHealth)
        async with bound(outbox, outbox.transaction) as orders:
            assert_type(orders, BoundOutbox[MemoryTransaction])
            assert_type(orders.tx, MemoryTransaction)
            assert_type(await orders.enqueue(Message("shop.order.placed.v1", 1)), int)
        await outbox.dispatcher.wait_for(1)
    async with outbox.bound("a session") as orders_in_memory:
        assert_type(orders_in_memory, BoundOutbox[str])
        assert_type(orders_in_memory.tx, str)


def test_overrides() -> None:
    app = FastAPI()
    dependency = outbox_transaction(MemoryOutbox(), MemoryOutbox().transaction)
    with override_outbox(app, dependency) as outbox:
        assert_type(outbox, MemoryOutbox)
        assert_type(dependency_of(dependency), Callable[..., Any])

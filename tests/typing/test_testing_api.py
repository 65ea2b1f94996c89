"""The types of the test kit, checked by mypy and pyright; run to prove that the calls are real."""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

import pytest

from outbox_core.message import Message
from outbox_core.testing import MemoryOutbox, RecordingDispatcher, SeenMessage, VirtualClock, matching


@pytest.mark.asyncio
async def test_the_kit() -> None:
    clock = VirtualClock()
    assert_type(clock.advance(hours=1), datetime)
    outbox = MemoryOutbox("orders_outbox", clock=clock, dispatcher=RecordingDispatcher())
    async with outbox.transaction() as tx:
        await outbox.enqueue(tx, Message("shop.order.placed.v1", {"order": 1}))
    assert_type(outbox.assert_enqueued("shop.**", payload=matching(order=1), key=None), SeenMessage)
    assert_type(await outbox.drain(), list[SeenMessage])
    assert_type(outbox.published("shop.**"), list[SeenMessage])
    assert_type(outbox.dispatcher.assert_published(), SeenMessage)

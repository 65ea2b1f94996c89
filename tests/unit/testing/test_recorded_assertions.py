"""What a recording dispatcher can be asked."""

from __future__ import annotations

import pytest

from outbox_core.errors import PermanentError
from outbox_core.testing import RecordingDispatcher, matching
from outbox_core.testing.contracts.samples import sample

pytestmark = pytest.mark.asyncio


async def test_shows_what_was_acknowledged_decoded() -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.fail(PermanentError("no"), topic="orders.refused.v1")
    await dispatcher.dispatch(sample("orders.placed.v1", b'{"order":7}', key="k"))
    with pytest.raises(PermanentError):
        await dispatcher.dispatch(sample("orders.refused.v1", b'{"order":8}'))
    (message,) = dispatcher.published("orders.**")
    assert (message.topic, message.payload, message.key) == ("orders.placed.v1", {"order": 7}, "k")
    assert dispatcher.assert_published(payload=matching(order=7), key="k") == message
    dispatcher.assert_not_published("orders.refused.v1")
    with pytest.raises(AssertionError, match="expected no message published"):
        dispatcher.assert_not_published()
    with pytest.raises(
        AssertionError, match=r"found 0\npublished:\n  \d+\. orders\.placed\.v1 \{'order': 7\}"
    ):
        dispatcher.assert_published("mail.**")


async def test_a_duplicate_is_there_twice() -> None:
    dispatcher = RecordingDispatcher()
    message = sample("orders.placed.v1", b"1")
    await dispatcher.dispatch(message)
    await dispatcher.dispatch(message)
    with pytest.raises(AssertionError, match="found 2"):
        dispatcher.assert_published("orders.**")
    dispatcher.assert_published("orders.**", times=2)
    dispatcher.clear()
    assert (dispatcher.received, dispatcher.published()) == ([], [])

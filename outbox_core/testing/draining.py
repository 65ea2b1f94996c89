"""Delivering what integration tests have committed, without a relay that keeps running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from outbox_core.relay import Relay
from outbox_core.testing.recording import RecordingDispatcher

if TYPE_CHECKING:
    from outbox_core.table import TableName
    from outbox_core.testing.messages import SeenMessage

_QUICK: Final[dict[str, Any]] = {"backoff_base": 0.01, "backoff_cap": 0.05, "backoff_jitter": 0.0}


async def drain(
    dsn: str,
    table: str | TableName,
    *,
    dispatcher: RecordingDispatcher | None = None,
    timeout: float = 10.0,
    **settings: Any,
) -> list[SeenMessage]:
    """Deliver what is committed and due in a real table, and return what was acknowledged this time, in order.

        await client.post("/orders", json={"order": 7})
        (message,) = await drain(dsn, "orders_outbox")

    ``settings`` are those of `RelaySettings`; retries come within 50 ms unless they say otherwise, and a message that
    still backs off when nothing else is due is left to the next call. Raises TimeoutError after ``timeout`` seconds,
    which is how long it waits while another relay leads the table: keep that of the application under test off.
    """
    recording = RecordingDispatcher() if dispatcher is None else dispatcher
    before = len(recording.acknowledged)
    relay = Relay(dsn, table=table, dispatcher=recording, cleaner=None, **(_QUICK | settings))
    await relay.drain(timeout=timeout)
    return recording.published()[before:]

"""Seeing to it that hints can arrive where nobody leads: an election uses the same session, and there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from outbox_core.errors import StorageError
from outbox_core.observer import Reconnecting
from outbox_core.relay.settings import HEARTBEATS

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.store import Store
    from outbox_core.table import TableName


async def keep_listening(
    store: Store, table: TableName, takeover: float, observe: Callable[[Event], None]
) -> None:
    """Have the store look after its session as often as a leader would, until cancelled; failures of the database are
    told as those of ``table``."""
    interval = takeover / HEARTBEATS
    while True:
        try:
            await store.keep_listening()
        except StorageError as error:
            observe(Reconnecting(table, str(error), interval))
        await anyio.sleep(interval)

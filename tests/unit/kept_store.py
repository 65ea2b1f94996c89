"""A store in memory that outlives the relays it is given to, so that a test can read it."""

from __future__ import annotations

from typing import Self

from outbox_core.stores.memory import MemoryStore


class KeptStore(MemoryStore):
    """Pass its `connect` to a relay, whose end does not close it."""

    def connect(self) -> Self:
        return self

    async def close(self) -> None:
        pass

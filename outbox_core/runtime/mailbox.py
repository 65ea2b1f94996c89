"""Between two tasks: a list that the other one empties, and an event that wakes it."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

_T = TypeVar("_T")


class AutoResetEvent:
    """An event that the wait it ends resets. For one waiting task."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """End the wait under way, or the next one at once."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until it is set, and reset it."""
        await self._event.wait()
        self._event.clear()


class Mailbox(Generic[_T]):
    """Items from any task for one task, which takes all there are."""

    def __init__(self) -> None:
        self._items: list[_T] = []
        self._filled = AutoResetEvent()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: _T) -> None:
        """Leave an item. Never waits."""
        self._items.append(item)
        self._filled.set()

    def take_now(self) -> list[_T]:
        """Take all there are, which may be none."""
        items, self._items = self._items, []
        return items

    async def take(self) -> list[_T]:
        """Wait until there is one, and take all. A cancelled wait takes none."""
        while not self._items:
            await self._filled.wait()
        return self.take_now()

"""Sets iterated in the order of insertion. Without them, the order in which a task group cancels its tasks would
depend on where they happen to be in memory, and a seed would not always give the same run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

from anyio._backends import _asyncio as backend

T = TypeVar("T")


class OrderedSet(MutableSet[T]):
    """As much of ``set`` as task groups and cancel scopes use."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: T) -> None:
        self._items[value] = None

    def discard(self, value: T) -> None:
        self._items.pop(value, None)


@contextmanager
def ordered_sets() -> Iterator[None]:
    with patch.object(backend, "set", OrderedSet, create=True):
        yield

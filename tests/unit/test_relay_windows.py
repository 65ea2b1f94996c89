"""Whatever a dispatcher makes of a window is the messages' outcome, never the relay's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from outbox_core.errors import InvalidDispatcherReturn
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.integration.relay.bench import until
from tests.unit.relaying import QUICK, TABLE, put, rows

pytestmark = pytest.mark.asyncio


class Sized:
    """Has a length, and nothing else of a sequence."""

    def __init__(self, messages: Sequence[DispatchedMessage]) -> None:
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length


class Breaking(Sized):
    """Ends with an error at its second outcome."""

    def __iter__(self) -> Iterator[None]:
        yield None
        raise LookupError("lost")


class Longer(Sized):
    """Has more outcomes than its length says."""

    def __iter__(self) -> Iterator[None]:
        return iter([None] * (len(self) + 1))


class Windows:
    def __init__(self, answer: Callable[[Sequence[DispatchedMessage]], object]) -> None:
        self._answer = answer

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        raise AssertionError("windows were promised")

    async def dispatch_many(self, messages: Sequence[DispatchedMessage], /, *, deadline: float) -> Any:
        return self._answer(messages)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Sized, "UNKNOWN.TYPEERROR"),
        (Breaking, "UNKNOWN.LOOKUPERROR"),
        (Longer, InvalidDispatcherReturn.code),
    ],
)
async def test_an_answer_that_is_not_an_outcome_for_each_is_the_messages_failure(
    answer: Callable[[Sequence[DispatchedMessage]], object], error: str
) -> None:
    store = MemoryStore()
    await put(store, Message("a.b.v1", 1), Message("a.b.v1", 2))
    async with Relay(
        lambda: store, table=TABLE, dispatcher=Windows(answer), max_attempts=2, **QUICK
    ) as relay:
        await until(lambda: all(row.dead_at is not None for row in rows(store)), 5.0)
        assert relay.state == "running"
    assert all((row.last_error or "").startswith(f"{error} ") for row in rows(store))

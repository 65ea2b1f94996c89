"""Whatever a dispatcher makes of a window is the messages' outcome, never the relay's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pytest

from outbox_core.errors import InvalidDispatcherReturn, PermanentError
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.memory import TABLE, put, rows
from tests.kit.settings import QUICK
from tests.kit.waiting import until

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


RETURNED = f"{InvalidDispatcherReturn.code} dispatch_many of Windows returned "
A_LIST = "; return a list with one outcome for each message, in order: None or the exception"
ONE_FOR_EACH = "; return one for each, in order: None or the exception"
OUTCOME = (
    " as an outcome; each is None, once the destination has acknowledged its message, or the exception itself"
)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _: None, f"{RETURNED}None{A_LIST}"),
        (lambda _: True, f"{RETURNED}a bool{A_LIST}"),
        (lambda _: {1: None, 2: None}, f"{RETURNED}a dict{A_LIST}"),
        (lambda _: {1, 2}, f"{RETURNED}a set{A_LIST}"),
        (lambda _: "ok", f"{RETURNED}a str{A_LIST}"),
        (Sized, f"{RETURNED}a Sized{A_LIST}"),
        (lambda _: [], f"{RETURNED}a list of 0 outcomes for 2 messages{ONE_FOR_EACH}"),
        (lambda _: [None], f"{RETURNED}a list of 1 outcome for 2 messages{ONE_FOR_EACH}"),
        (lambda _: (None,) * 5, f"{RETURNED}a tuple of more than 2 outcomes for 2 messages{ONE_FOR_EACH}"),
        (Longer, f"{RETURNED}a Longer of more than 2 outcomes for 2 messages{ONE_FOR_EACH}"),
        (lambda _: repeat(None), f"{RETURNED}a repeat of more than 2 outcomes for 2 messages{ONE_FOR_EACH}"),
        (lambda messages: [True for _ in messages], f"{RETURNED}a bool{OUTCOME}"),
        (lambda messages: [ValueError for _ in messages], f"{RETURNED}a type{OUTCOME}"),
        (Breaking, "UNKNOWN.LOOKUPERROR LookupError: lost"),
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
    assert [row.last_error for row in rows(store)] == [error] * 2


async def test_what_is_raised_is_the_outcome_of_every_message() -> None:
    def refuse(messages: Sequence[DispatchedMessage]) -> object:
        raise PermanentError("one of them is bad")

    store = MemoryStore()
    await put(store, Message("a.b.v1", 1), Message("a.b.v1", 2))
    assert await Relay(lambda: store, table=TABLE, dispatcher=Windows(refuse), **QUICK).drain() == 0
    assert [(row.dead_at is not None, row.attempts, row.last_error) for row in rows(store)] == [
        (True, 1, "PROVIDER.PERMANENT one of them is bad")
    ] * 2


async def test_an_answer_that_is_made_one_by_one_will_do() -> None:
    store = MemoryStore()
    await put(store, Message("a.b.v1", 1), Message("a.b.v1", 2))
    windows = Windows(lambda messages: (None for _ in messages))
    assert await Relay(lambda: store, table=TABLE, dispatcher=windows, **QUICK).drain() == 2


@pytest.mark.parametrize("raised", [True, False])
@pytest.mark.parametrize("filling", ["", "x" * 400_000])
async def test_an_error_of_several_messages_shows_none_of_them_to_the_others(
    raised: bool, filling: str
) -> None:
    def refuse(messages: Sequence[DispatchedMessage]) -> object:
        quoted = next(message for message in messages if b"4111" in message.payload)
        error = PermanentError(f"bad record: {quoted.payload[:200].decode()}")
        if raised:
            raise error
        return [error] * len(messages)

    store = MemoryStore()
    await put(store, *(Message("a.b.v1", {"card": f"{n}111-2222-3333", "x": filling}) for n in range(6)))
    assert await Relay(lambda: store, table=TABLE, dispatcher=Windows(refuse), **QUICK).drain() == 0
    errors = {row.last_error for row in rows(store)}
    assert len(errors) == 1
    for error in errors:
        assert error is not None
        assert error.startswith("PROVIDER.PERMANENT ")
        assert "-2222-3333" not in error


async def test_of_two_errors_in_a_window_each_is_shown_with_its_own() -> None:
    def refuse(messages: Sequence[DispatchedMessage]) -> object:
        odd, even = PermanentError("odd"), PermanentError("even")
        return [odd if message.json() == 1 else even for message in messages]

    store = MemoryStore()
    await put(store, *(Message("a.b.v1", number % 2) for number in range(4)))
    assert await Relay(lambda: store, table=TABLE, dispatcher=Windows(refuse), **QUICK).drain() == 0
    shown = sorted(str(row.last_error).split()[-1] for row in rows(store))
    assert shown == ["even", "even", "odd", "odd"]

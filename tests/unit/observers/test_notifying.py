"""Notifying observers: none of them keeps an event from the others, and the log says which one failed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from outbox_core.observer import Event, SessionEnded, tell
from outbox_core.relay.shared import Observers
from outbox_core.table import TableName

EVENT = SessionEnded(TableName.parse("orders_outbox"), pid=1)


class Odd(BaseException):
    """Not an Exception."""


class Broken:
    """An observer that is an object, or one of its methods."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, event: Event, /) -> None:
        raise self.error

    def listen(self, event: Event, /) -> None:
        raise self.error

    def __getattr__(self, name: str) -> Any:
        raise self.error  # also when it is asked for its name


def fail(error: BaseException, event: Event) -> None:
    raise error


def notify(observers: list[Any], by: str) -> None:
    if by == "relay":
        Observers(observers).notify(EVENT)
    else:
        tell(observers, EVENT)


@pytest.mark.parametrize("by", ["relay", "outbox"])
@pytest.mark.parametrize(
    "error",
    [ValueError("no"), asyncio.CancelledError(), GeneratorExit(), Odd()],
    ids=lambda error: type(error).__name__,
)
def test_what_one_raises_keeps_nothing_from_the_others(
    error: BaseException, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    broken = Broken(error)

    def function(event: Event) -> None:
        raise error

    notify([broken, broken.listen, function, partial(fail, error), heard.append], by)
    assert heard == [EVENT]
    assert [record.getMessage() for record in caplog.records] == [
        "the observer Broken failed on SessionEnded",
        "the observer Broken.listen failed on SessionEnded",
        f"the observer {function.__qualname__} failed on SessionEnded",
        "the observer partial failed on SessionEnded",
    ]
    assert all(record.exc_info is not None and record.exc_info[1] is error for record in caplog.records)


@pytest.mark.parametrize("by", ["relay", "outbox"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3)], ids=lambda error: type(error).__name__
)
def test_what_ends_the_process_goes_through(error: BaseException, by: str) -> None:
    with pytest.raises(type(error)):
        notify([Broken(error)], by)

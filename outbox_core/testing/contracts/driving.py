"""Using a dispatcher as a relay does, with a bound on everything."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, cast

import anyio

from outbox_core.dispatcher import BatchDispatcher, Dispatcher, Managed, Outcome
from outbox_core.errors import DispatchTimeout

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage
    from outbox_core.testing.contracts.broker import Broker

DISPATCH_SECONDS: Final = 15.0
"""How long a dispatch may take while the broker works: far longer than it should."""
OPEN_SECONDS: Final = 30.0
OVERTIME: Final = 0.5
"""Seconds after its deadline that a dispatcher may still take to return."""
_PAUSE: Final = 0.1


def expect(fulfilled: bool, otherwise: str) -> None:
    """Fail the test, saying what is wrong, unless the condition holds."""
    if not fulfilled:
        raise AssertionError(otherwise)


@contextmanager
def within(seconds: float, what: str) -> Generator[None]:
    """Fail the test when the block takes longer."""
    with anyio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise AssertionError(f"{what} took longer than {seconds:g} s")


@asynccontextmanager
async def opened(broker: Broker, dispatcher: Dispatcher | None = None) -> AsyncGenerator[Dispatcher]:
    """A new dispatcher, open and later closed, both within bounds."""
    made = broker.make() if dispatcher is None else dispatcher
    await open_dispatcher(made)
    try:
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await close_dispatcher(made, broker.close_within)


async def open_dispatcher(dispatcher: Dispatcher) -> None:
    if isinstance(dispatcher, Managed):
        with within(OPEN_SECONDS, "opening the dispatcher"):
            await dispatcher.__aenter__()


async def close_dispatcher(dispatcher: Dispatcher, seconds: float) -> None:
    if isinstance(dispatcher, Managed):
        with within(seconds, "closing the dispatcher"):
            await dispatcher.__aexit__(None, None, None)


async def dispatch(dispatcher: Dispatcher, message: DispatchedMessage) -> None:
    """Dispatch one message and see that nothing but None is returned; raises what the dispatcher raises."""
    with within(DISPATCH_SECONDS, "the dispatch of one message"):
        returned = cast("object", await dispatcher.dispatch(message))
        expect(returned is None, f"dispatch returned {returned!r}, and must return None or raise")


async def failure_of(dispatcher: Dispatcher, message: DispatchedMessage) -> Exception | None:
    """What a dispatch raises, or None when the message is acknowledged."""
    try:
        await dispatch(dispatcher, message)
    except AssertionError:
        raise
    except Exception as error:
        return error
    return None


async def dispatch_window(
    dispatcher: Dispatcher, messages: Sequence[DispatchedMessage], seconds: float = DISPATCH_SECONDS
) -> list[Outcome]:
    """Dispatch messages at once, in one window where the dispatcher takes windows; one outcome for each."""
    if not isinstance(dispatcher, BatchDispatcher):
        return await _dispatch_each(dispatcher, messages, seconds)
    outcomes: Sequence[Outcome] = ()
    with within(seconds + OVERTIME, f"a window with a deadline in {seconds:g} s"):
        outcomes = await dispatcher.dispatch_many(messages, deadline=anyio.current_time() + seconds)
    expect(
        len(outcomes) == len(messages),
        f"dispatch_many returned {len(outcomes)} outcomes for {len(messages)} messages",
    )
    for outcome in cast("Sequence[object]", outcomes):
        expect(
            outcome is None or isinstance(outcome, BaseException),
            f"an outcome is {outcome!r}, and must be None or an exception",
        )
    return list(outcomes)


async def _dispatch_each(
    dispatcher: Dispatcher, messages: Sequence[DispatchedMessage], seconds: float
) -> list[Outcome]:
    outcomes: list[Outcome] = [None] * len(messages)

    async def one(at: int, message: DispatchedMessage) -> None:
        with anyio.move_on_after(seconds) as scope:
            outcomes[at] = await failure_of(dispatcher, message)
        if scope.cancelled_caught:
            outcomes[at] = DispatchTimeout(f"not acknowledged within {seconds:g} s")

    with within(seconds + OVERTIME, f"messages cancelled after {seconds:g} s"):
        async with anyio.create_task_group() as tasks:
            for at, message in enumerate(messages):
                tasks.start_soon(one, at, message)
    return outcomes


async def recovered(broker: Broker, attempt: Callable[[], Awaitable[Outcome]], what: str) -> None:
    """Try until an attempt has no failure, for as long as the broker's recovery may take."""
    last: Outcome = None
    with anyio.move_on_after(broker.recovery):
        while True:
            last = await attempt()
            if last is None:
                return
            await anyio.sleep(_PAUSE)
    raise AssertionError(f"{what} did not work within {broker.recovery:g} s; last: {last!r}")


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record))


@contextmanager
def logged() -> Generator[list[str]]:
    """Everything logged meanwhile, by any library at any level, with tracebacks."""
    root = logging.getLogger()
    records, level = _Records(), root.level
    root.addHandler(records)
    root.setLevel(logging.DEBUG)
    try:
        yield records.lines
    finally:
        root.setLevel(level)
        root.removeHandler(records)

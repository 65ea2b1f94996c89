"""Send a window of messages through a link: all at once, an outcome for each, by a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import anyio

from outbox_core.adapter.link import Blocked
from outbox_core.errors import BrokerUnavailable, DispatchTimeout, ProviderError

if TYPE_CHECKING:
    from outbox_core.adapter.link import Held, Link
    from outbox_core.dispatcher import Outcome
    from outbox_core.meta import DispatchedMessage

C = TypeVar("C")
T = TypeVar("T")
Publish = Callable[[C, "Sequence[DispatchedMessage]", "list[Outcome]"], Awaitable[None]]
"""Publishes a window; writes each message's outcome at its index in the list as soon as it is known."""

_MARGIN: Final = 0.05
"""Seconds before the deadline at which pending messages time out; a tenth of the time left, if that is less."""
_CANCEL_SECONDS: Final = 0.2


class Pending(Exception):
    """Placeholder of an outcome that is not known yet."""


PENDING: Final = Pending()


class Undecided(Exception):
    """Raised when several messages failed together and the error does not say which of them caused it.

    Each of them is sent again, alone. ``error`` is the outcome of a message that fails in this way alone, too.
    """

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


async def send_window(
    link: Link[C], messages: Sequence[DispatchedMessage], publish: Publish[C], *, deadline: float
) -> list[Outcome]:
    """Publish every message, and return by the deadline with the outcome of each, in order.

    A message that is pending at the deadline gets `DispatchTimeout`; so does every message when the deadline has
    already passed. A client that missed the deadline, was cancelled or found the broker unavailable is retired.
    """
    now = anyio.current_time()
    if now >= deadline:
        return [_late(0.0) for _ in messages]
    if not messages:
        return []
    until = deadline - min(_MARGIN, (deadline - now) / 10)
    outcomes = await _send(link, messages, publish, until)
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Undecided):
            outcomes[index] = await _send_alone(link, messages[index], publish, until, outcome)
    return outcomes


async def publish_each(
    publish: Callable[[DispatchedMessage], Awaitable[None]],
    messages: Sequence[DispatchedMessage],
    outcomes: list[Outcome],
) -> None:
    """Publish a window with a function of one message, each in a task of its own."""
    tasks = [asyncio.ensure_future(publish(message)) for message in messages]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for _ in range(2):  # a client may swallow its cancellation once
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS / 2)
        raise
    finally:
        for index, task in enumerate(tasks):
            if task.done() and not task.cancelled():
                outcomes[index] = task.exception()


class Confirmations(Generic[T]):
    """The messages of a window that a client has taken, by their indexes, until the broker has confirmed them.

    They need no task and no callback each, which would cost more than the rest of the dispatch. ``outcome`` turns a
    confirmation into an outcome. At the end of the block the outcomes of the confirmed messages are stored, and the
    futures of the others are cancelled.
    """

    def __init__(self, outcomes: list[Outcome], outcome: Callable[[int, asyncio.Future[T]], Outcome]) -> None:
        self._outcomes = outcomes
        self._outcome = outcome
        self._waiting: dict[int, asyncio.Future[T]] = {}

    def __setitem__(self, index: int, future: asyncio.Future[T]) -> None:
        self._waiting[index] = future

    async def wait(self) -> None:
        """Wait until every message is confirmed."""
        for future in self._waiting.values():
            if not future.done():
                await asyncio.wait((future,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for index, future in self._waiting.items():
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                self._outcomes[index] = self._outcome(index, future)


async def ask(link: Link[C], question: Callable[[C], Awaitable[object]], *, timeout: float) -> None:
    """Make a round trip to the broker within ``timeout`` seconds. Raises `BrokerUnavailable`, retiring the client."""
    until = anyio.current_time() + timeout
    async with link.use(until) as held:
        try:
            async with asyncio.timeout(until - anyio.current_time()):
                await question(held.client)
        except TimeoutError:
            link.retire(held)
            raise BrokerUnavailable(f"the broker did not answer within {timeout:g} s") from None
        except BrokerUnavailable as error:
            if _in_doubt(error):
                link.retire(held)
            raise
        except asyncio.CancelledError:
            link.retire(held)
            raise


async def _send(
    link: Link[C], messages: Sequence[DispatchedMessage], publish: Publish[C], until: float
) -> list[Outcome]:
    began = anyio.current_time()
    try:
        async with link.use(until) as held:
            try:
                outcomes = await _publish_all(held, messages, publish, until, began)
            except asyncio.CancelledError:
                link.retire(held)
                raise
            if any(outcome is not None and _in_doubt(outcome) for outcome in outcomes):
                link.retire(held)
            return outcomes
    except BrokerUnavailable as error:
        return [error] * len(messages)


async def _send_alone(
    link: Link[C], message: DispatchedMessage, publish: Publish[C], until: float, first: Undecided
) -> Outcome:
    if anyio.current_time() >= until:
        return ProviderError(
            f"failed together with other messages, and there was no time to try it alone: {first}"
        )
    (outcome,) = await _send(link, (message,), publish, until)
    return outcome.error if isinstance(outcome, Undecided) else outcome


async def _publish_all(
    held: Held[C], messages: Sequence[DispatchedMessage], publish: Publish[C], until: float, began: float
) -> list[Outcome]:
    outcomes: list[Outcome] = [PENDING] * len(messages)
    task = asyncio.ensure_future(publish(held.client, messages, outcomes))

    def cancel() -> None:
        task.cancel()

    held.watchers.add(cancel)
    try:
        if held.loss is None:
            await asyncio.wait((task,), timeout=max(until - anyio.current_time(), 0))
    finally:
        held.watchers.discard(cancel)
        if not task.done():
            with anyio.CancelScope(shield=True):
                task.cancel()
                await asyncio.wait((task,), timeout=_CANCEL_SECONDS * 2)
    failure = task.exception() if task.done() and not task.cancelled() else None
    rest = failure or held.loss or _late(anyio.current_time() - began)
    # A copy: a task that ignored its cancellation may still write.
    return [rest if outcome is PENDING else outcome for outcome in outcomes]


def _in_doubt(outcome: Outcome) -> bool:
    """True when the client cannot be trusted with more messages after this outcome."""
    in_doubt = isinstance(outcome, BrokerUnavailable | DispatchTimeout | Undecided)
    return in_doubt and not isinstance(outcome, Blocked)


def _late(seconds: float) -> DispatchTimeout:
    return DispatchTimeout(f"not acknowledged within {seconds:.3g} s; whether it was delivered is not known")

"""One dispatcher made of several, all of which get every message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, cast

import anyio

from outbox_core.adapter.arguments import shown_name
from outbox_core.dispatcher import BatchDispatcher, Dispatcher, Outcome, Probing, as_dispatcher, name_of
from outbox_core.dispatchers.failures import joined_targets
from outbox_core.dispatchers.targets import Targets
from outbox_core.errors import ConfigError, InvalidDispatcherReturn, ProviderError
from outbox_core.outcomes import outcomes_of

if TYPE_CHECKING:
    from typing import Self

    from outbox_core.meta import DispatchedMessage


class FanOut:
    """Sends each message to all its targets at once; acknowledged when every one of them has acknowledged it.

        FanOut([kafka, bus])

    When some targets fail, the message is sent again to **all** of them, so those that had it get it twice, and while
    one is away none gets past it. Whoever minds enqueues one message per destination instead.

    Several failures are raised together: `BrokerUnavailable` when a target is away, else `DispatchTimeout` when one
    did not answer, else a group, a permanent one only if every failure is. Takes windows (``dispatch_many``) when every
    target does.
    """

    def __init__(
        self,
        targets: Sequence[Dispatcher | Callable[[DispatchedMessage], Awaitable[None]]],
        *,
        name: str = "FanOut",
    ) -> None:
        if not isinstance(targets, Sequence):
            raise ConfigError(f"targets must be a sequence of dispatchers, got {type(targets).__name__}")
        self._targets = Targets(as_dispatcher(target) for target in targets)
        if not targets:
            raise ConfigError("a FanOut needs a target; without one it would acknowledge what nobody got")
        if len(self._targets.distinct) != len(targets):
            raise ConfigError("a FanOut names one target twice; it would get every message twice")
        self.name = shown_name(name) or "FanOut"
        if all(isinstance(target, BatchDispatcher) for target in self._targets.distinct):
            # Whether a dispatcher takes windows is told by its having the method at all.
            self.dispatch_many = self._dispatch_many

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        """Raises what went wrong, if any target failed; never before all have ended."""
        failures = [
            outcome for outcome in await self._all(partial(_dispatch, message=message)) if outcome is not None
        ]
        if failures:
            raise self._together(failures)

    async def probe(self) -> None:
        """Probe every target that can be; raises when one does not answer."""
        failures = [outcome for outcome in await self._all(_probe) if outcome is not None]
        if failures:
            raise self._together(failures)

    async def __aenter__(self) -> Self:
        await self._targets.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._targets.close()

    def __repr__(self) -> str:
        return f"FanOut({', '.join(map(name_of, self._targets.distinct))})"

    def _together(self, failures: Sequence[Exception]) -> Exception:
        total = len(self._targets.distinct)
        return joined_targets(f"{len(failures)} of {total} targets failed", failures)

    async def _all(self, do: Callable[[Dispatcher], Awaitable[None]]) -> list[Exception | None]:
        # Whoever ends without an outcome was cancelled from inside, which must not look like success.
        outcomes: list[Exception | None] = [
            ProviderError(f"the target {name_of(target)} was cancelled from inside")
            for target in self._targets.distinct
        ]

        async def one(at: int, target: Dispatcher) -> None:
            try:
                await do(target)
            except Exception as error:  # whatever one raises is its outcome, and costs no other
                outcomes[at] = error
            else:
                outcomes[at] = None

        async with anyio.create_task_group() as tasks:
            for at, target in enumerate(self._targets.distinct):
                tasks.start_soon(one, at, target)
        return outcomes

    async def _dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        windows: dict[int, Sequence[Outcome]] = {}

        async def one(target: Dispatcher) -> None:
            returned = await cast("BatchDispatcher", target).dispatch_many(messages, deadline=deadline)
            windows[id(target)] = outcomes_of(name_of(target), returned, len(messages))

        for target, failure in zip(self._targets.distinct, await self._all(one), strict=True):
            if failure is not None:
                windows[id(target)] = [failure] * len(messages)
        return [self._outcome(of_message) for of_message in zip(*windows.values(), strict=True)]

    def _outcome(self, outcomes: Sequence[Outcome]) -> Outcome:
        fatal = next((one for one in outcomes if one is not None and not isinstance(one, Exception)), None)
        failures = [one for one in outcomes if isinstance(one, Exception)]
        return fatal or (self._together(failures) if failures else None)


async def _dispatch(target: Dispatcher, message: DispatchedMessage) -> None:
    returned = cast("object", await target.dispatch(message))
    if returned is not None:
        raise InvalidDispatcherReturn(name_of(target), returned)


async def _probe(target: Dispatcher) -> None:
    if isinstance(target, Probing):
        await target.probe()

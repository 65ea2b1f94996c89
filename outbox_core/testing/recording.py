"""Dispatchers that keep what they are given, and fail when a test tells them to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, Unpack

import anyio
import anyio.lowlevel

from outbox_core.errors import BrokerUnavailable, ConfigError, DispatchTimeout
from outbox_core.testing.expectation import Conditions, refuse, require, select
from outbox_core.testing.messages import SeenMessage, of_dispatched
from outbox_core.topic import TopicPattern

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome
    from outbox_core.meta import DispatchedMessage

WAIT_SECONDS: Final = 10.0

Failure: TypeAlias = "BaseException | type[BaseException] | Callable[[DispatchedMessage], BaseException]"
"""An exception, the type of one to be made without arguments, or a function that makes one for a message."""


@dataclass(slots=True)
class _Script:
    failure: Failure
    pattern: TopicPattern
    when: Callable[[DispatchedMessage], bool] | None
    skips: int
    times: float

    def failure_of(self, message: DispatchedMessage) -> BaseException | None:
        if not self.pattern.matches(message.meta.topic) or (self.when and not self.when(message)):
            return None
        if self.skips > 0:
            self.skips -= 1
            return None
        if self.times <= 0:
            return None
        self.times -= 1
        if isinstance(self.failure, BaseException):
            return self.failure
        return self.failure() if isinstance(self.failure, type) else self.failure(message)


class RecordingDispatcher:
    """Acknowledges every message and keeps it, except those that are scripted to fail.

        dispatcher = RecordingDispatcher()
        dispatcher.fail(PermanentError("no such customer"), topic="orders.**", times=1)

    ``acknowledged`` has what was delivered, in order, and ``received`` every attempt, failed ones too. It can freeze
    and go down like a broker. For one event loop at a time.
    """

    def __init__(self, *, name: str = "RecordingDispatcher") -> None:
        self.name = name
        self.received: list[DispatchedMessage] = []
        self.acknowledged: list[DispatchedMessage] = []
        self._scripts: list[_Script] = []
        self._thawed: anyio.Event | None = None
        self._is_down = False
        self._progress = anyio.Event()

    def fail(
        self,
        failure: Failure,
        *,
        topic: str | TopicPattern = "**",
        when: Callable[[DispatchedMessage], bool] | None = None,
        after: int = 0,
        times: int | None = None,
    ) -> None:
        """Fail the messages of a topic pattern for which ``when`` is true.

        Of those, the first ``after`` pass, and then ``times`` fail, all that follow when it is None. Of several scripts
        the first that has a failure for a message decides.
        """
        if after < 0 or (times is not None and times < 1):
            raise ConfigError(f"after must not be negative and times at least 1, got {after} and {times}")
        limit = float("inf") if times is None else times
        self._scripts.append(_Script(failure, TopicPattern.parse(topic), when, after, limit))

    def heal(self) -> None:
        """Forget every script, come up and thaw."""
        self._scripts.clear()
        self.come_up()
        self.thaw()

    def freeze(self) -> None:
        """From now on nothing is answered, neither messages nor probes, until `thaw`."""
        if self._thawed is None:
            self._thawed = anyio.Event()

    def thaw(self) -> None:
        """Answer again, those too that have been waiting meanwhile."""
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None

    def go_down(self) -> None:
        """From now on messages and probes fail with `BrokerUnavailable`, until `come_up`."""
        self._is_down = True

    def come_up(self) -> None:
        """Undo `go_down`."""
        self._is_down = False

    def published(
        self, topic: str | TopicPattern = "**", **conditions: Unpack[Conditions]
    ) -> list[SeenMessage]:
        """What was acknowledged of a topic pattern, in order; a message delivered twice is there twice."""
        return select(self._seen(), topic, **conditions)

    def assert_published(
        self, topic: str | TopicPattern = "**", *, times: int | None = 1, **conditions: Unpack[Conditions]
    ) -> SeenMessage:
        """Exactly ``times`` such messages were acknowledged, or any number when it is None; returns the first."""
        return require(self._seen(), "published", topic, times, **conditions)

    def assert_not_published(
        self, topic: str | TopicPattern = "**", **conditions: Unpack[Conditions]
    ) -> None:
        """No such message was acknowledged; none at all when nothing is said."""
        refuse(self._seen(), "published", topic, **conditions)

    def clear(self) -> None:
        """Forget what was received; scripts stay."""
        self.received.clear()
        self.acknowledged.clear()

    async def wait_for(self, count: int, *, timeout: float = WAIT_SECONDS) -> list[DispatchedMessage]:
        """Wait until so many messages have been acknowledged in all, and return them."""
        with anyio.move_on_after(timeout):
            while len(self.acknowledged) < count:
                await self._progress.wait()
        if len(self.acknowledged) < count:
            raise AssertionError(
                f"{len(self.acknowledged)} of {count} messages were acknowledged within {timeout:g} s,"
                f" after {len(self.received)} attempts"
            )
        return list(self.acknowledged)

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        """Keep the message, or raise what is scripted for it."""
        self.received.append(message)
        await self._answer()
        for script in self._scripts:
            failure = script.failure_of(message)
            if failure is not None:
                raise failure
        self.acknowledged.append(message)
        self._progress.set()
        self._progress = anyio.Event()

    async def probe(self) -> None:
        """Succeeds unless frozen or down."""
        await self._answer()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.acknowledged)} of {len(self.received)} acknowledged)"

    def _seen(self) -> list[SeenMessage]:
        return [of_dispatched(message) for message in self.acknowledged]

    async def _answer(self) -> None:
        while self._thawed is not None:
            await self._thawed.wait()
        if self._is_down:
            raise BrokerUnavailable(f"{self.name} is down")
        await anyio.lowlevel.checkpoint()


class RecordingBatchDispatcher(RecordingDispatcher):
    """A `RecordingDispatcher` that takes windows, which it keeps in ``windows``."""

    def __init__(self, *, name: str = "RecordingBatchDispatcher") -> None:
        super().__init__(name=name)
        self.windows: list[list[DispatchedMessage]] = []

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        """Dispatch one after the other; what is open at the deadline is a `DispatchTimeout`."""
        self.windows.append(list(messages))
        outcomes: list[Outcome] = []
        with anyio.CancelScope(deadline=deadline):
            for message in messages:
                outcomes.append(await self._outcome(message))
        late = len(messages) - len(outcomes)
        return outcomes + [DispatchTimeout("not acknowledged by the deadline") for _ in range(late)]

    async def _outcome(self, message: DispatchedMessage) -> Outcome:
        try:
            await self.dispatch(message)
        except Exception as error:
            return error
        return None

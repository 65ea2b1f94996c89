"""The leaf dispatchers of a relay, each with an outage of its own, shared by all its tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

import anyio

from outbox_core.dispatcher import (
    BatchDispatcher,
    Dispatcher,
    FunctionDispatcher,
    Probing,
    Routing,
    name_of,
)
from outbox_core.relay import clock
from outbox_core.relay.breaker import Breaker, BreakerState

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage
    from outbox_core.relay.backoff import Backoff
    from outbox_core.store import Row


PROBE_SECONDS: Final = 5.0
"""The longest wait between two probes of a destination that is away: they cost little, and it is to be seen soon."""

_STUCK_SECONDS: Final = 1.0
MOST_TOPICS: Final = 10_000
"""Topics that are remembered. Where they are made from ids there is no end of them."""


class Leaf:
    """One destination: its dispatcher, its breaker, what is in flight to it, and the topics seen for it."""

    def __init__(self, dispatcher: Dispatcher, breaker: Breaker, changed: Callable[[Leaf], None]) -> None:
        self.dispatcher = dispatcher
        self.name = name_of(dispatcher)
        self.breaker = breaker
        self.batches = isinstance(dispatcher, BatchDispatcher)
        self.dispatch: Callable[[DispatchedMessage], Awaitable[object]] = (
            dispatcher.function if isinstance(dispatcher, FunctionDispatcher) else dispatcher.dispatch
        )
        """How one message is dispatched; whatever it returns besides None is a mistake."""
        self.in_flight: dict[Row, float] = {}
        """The rows that are with the dispatcher now, and since when."""
        self.topics: set[str] = set()
        self._changed = changed
        self._opened = anyio.Event()
        self._alone: Row | None = None
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_open(self) -> bool:
        return self.breaker.state is BreakerState.OPEN

    def is_stuck(self, now: float) -> bool:
        """Whether it has messages and has acknowledged none for a second."""
        since = next(iter(self.in_flight.values()), now)
        return now - max(since, self.breaker.last_ack or 0.0) >= _STUCK_SECONDS

    def starts(self, row: Row, now: float) -> bool:
        """Whether a row goes to the dispatcher now: everything does while messages flow, one at a time when it is
        being seen whether they do, and a suspect only alone."""
        breaker = self.breaker
        if self._alone is not None:
            return False
        if breaker.suspects or breaker.state is not BreakerState.CLOSED:
            suspect = breaker.is_suspect(row.id)
            if breaker.state is BreakerState.OPEN or (
                self.in_flight and (suspect or breaker.state is BreakerState.HALF_OPEN)
            ):
                return False
            if suspect:
                self._alone = row
        self.in_flight[row] = now
        return True

    def ended(self, row: Row) -> None:
        self.in_flight.pop(row, None)
        if self._alone is row:
            self._alone = None
        if self._waiting and not self.in_flight:
            waiting, self._waiting = self._waiting, {}
            for poke in waiting:
                poke()

    def when_free(self, poke: Callable[[], None]) -> None:
        """Call back, once, when nothing is in flight: the rows of several tables may wait for their turn here."""
        self._waiting[poke] = None

    def keeps_waiting(self, poke: Callable[[], None]) -> bool:
        """Whether `when_free` will call back."""
        return bool(self.in_flight) and poke in self._waiting

    def open(self, now: float, more: frozenset[UUID]) -> bool:
        """The destination is away. True when that is news."""
        news = self.breaker.open(now, {row.id for row in self.in_flight} | more)
        self._opened.set()
        self._changed(self)
        return news

    def acknowledged(self, now: float) -> bool:
        """A message arrived. True when that ends an outage."""
        if self.breaker.acknowledged(now):
            self._changed(self)
            return True
        return False

    async def probe(self, timeout: float) -> bool:
        """Ask for a sign of life; true without asking when the dispatcher cannot ask."""
        if not isinstance(self.dispatcher, Probing):
            return True
        task = asyncio.current_task()
        try:
            with anyio.fail_after(timeout):
                await self.dispatcher.probe()
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            return False  # of a future of the client's own, whose connection is gone
        except Exception:  # whatever a probe raises means the same: no sign of life
            return False
        return True

    @property
    def probes(self) -> bool:
        return isinstance(self.dispatcher, Probing)

    async def watch(self, probe_timeout: float) -> None:
        """While the destination is away, look from time to time whether it is back. Runs until cancelled."""
        while True:
            await self._opened.wait()
            self._opened = anyio.Event()
            while self.is_open:
                await anyio.sleep(max(self.breaker.retry_at - clock.now(), 0.01))
                if await self.probe(probe_timeout):
                    self.breaker.half_open(answered=self.probes)
                    self._changed(self)
                else:
                    self.breaker.probe_failed(clock.now())


class Leaves:
    """Finds the leaf for a topic, once per topic."""

    def __init__(self, root: Dispatcher, backoff: Backoff, patience: float) -> None:
        self._root = root
        self.many: Final = isinstance(root, Routing)
        """Whether there may be several destinations."""
        self._backoff = backoff
        self._patience = patience
        self._by_topic: dict[str, Leaf] = {}
        self._by_dispatcher: dict[int, Leaf] = {}
        self._listeners: list[Callable[[Leaf], None]] = []
        self.found: Callable[[Leaf], None] | None = None
        """Called with each leaf when it is first met."""

    def on_change(self, listener: Callable[[Leaf], None]) -> None:
        """Be told whenever a leaf's breaker opens, half opens or closes."""
        self._listeners.append(listener)

    def of(self, topic: str) -> Leaf:
        """The leaf for a topic. Raises what a router's own ``route`` raises."""
        leaf = self._by_topic.get(topic)
        if leaf is None:
            dispatcher: object = self._root
            while isinstance(dispatcher, Routing):
                dispatcher = dispatcher.route(topic)
            leaf = self._leaf(_as_dispatcher(dispatcher))
            if len(self._by_topic) >= MOST_TOPICS:
                self._forget_topics()
            leaf.topics.add(topic)
            self._by_topic[topic] = leaf
        return leaf

    def _forget_topics(self) -> None:
        """Begin anew. Rows for a destination that is away are then claimed and given back once for each topic."""
        self._by_topic.clear()
        for leaf in self._by_dispatcher.values():
            leaf.topics.clear()

    def shut_topics(self, more: Sequence[Leaf] = ()) -> list[str]:
        """Topics whose destination is away, as far as seen, and those of ``more`` destinations."""
        leaves = self._by_dispatcher.values()
        return [topic for leaf in leaves if leaf.is_open or leaf in more for topic in leaf.topics]

    def stuck(self, now: float) -> list[Leaf]:
        """Destinations that do not answer, where there are others."""
        return [leaf for leaf in self._by_dispatcher.values() if leaf.is_stuck(now)] if self.many else []

    @property
    def all_away(self) -> bool:
        """Whether there is nowhere to dispatch to: a single destination, and it is away."""
        return not self.many and any(leaf.is_open for leaf in self._by_dispatcher.values())

    def _leaf(self, dispatcher: Dispatcher) -> Leaf:
        leaf = self._by_dispatcher.get(id(dispatcher))
        if leaf is None:
            backoff = self._backoff
            if isinstance(dispatcher, Probing):
                backoff = replace(backoff, cap=min(backoff.cap, PROBE_SECONDS))
            leaf = Leaf(dispatcher, Breaker(backoff, self._patience), self._tell)
            self._by_dispatcher[id(dispatcher)] = leaf
            if self.found is not None:
                self.found(leaf)
        return leaf

    def _tell(self, leaf: Leaf) -> None:
        for listener in self._listeners:
            listener(leaf)


def _as_dispatcher(value: object) -> Dispatcher:
    if not isinstance(value, Dispatcher):
        raise TypeError(f"route() returned a {type(value).__name__}, which is not a dispatcher")
    return value

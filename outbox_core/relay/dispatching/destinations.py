"""The destinations of a relay: the dispatcher at the end of each route, with its state, shared by all tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.dispatcher import (
    BatchDispatcher,
    Dispatcher,
    FunctionDispatcher,
    Probing,
    Routing,
    check_dispatches,
    name_of,
)
from outbox_core.redaction import why_failed
from outbox_core.relay.dispatching.breaker import Breaker
from outbox_core.relay.dispatching.gate import Gate
from outbox_core.relay.dispatching.quarantine import Quarantine
from outbox_core.routes import leaf_of
from outbox_core.runtime import clock
from outbox_core.runtime.mailbox import Mailbox
from outbox_core.runtime.supervision import ended_within

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage
    from outbox_core.relay.dispatching.pool import DispatchPool, Worker
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.runtime.backoff import Backoff

PROBE_SECONDS: Final = 5.0
"""The longest wait between two probes of an unavailable destination: they cost little, and its return has to be seen
soon."""
MOST_TOPICS: Final = 10_000
"""Topics that are remembered. Where they are made from ids there is no end of them."""
_STUCK_SECONDS: Final = 1.0
_MAX_ABANDONED_PROBES: Final = 3
_logger: Final = logging.getLogger("outbox_core.relay")


class Destination:
    """One dispatcher: its breaker, its gate, what it knows of poison messages, and the topics seen for it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        breaker: Breaker,
        *,
        subscribers: Sequence[Mailbox[Destination]],
        opened: Mailbox[Destination],
    ) -> None:
        self.dispatcher = dispatcher
        self.name = name_of(dispatcher)
        self.breaker = breaker
        self.quarantine = Quarantine()
        self.gate = Gate(breaker, self.quarantine)
        self.batches = isinstance(dispatcher, BatchDispatcher)
        self.dispatch: Callable[[DispatchedMessage], Awaitable[object]] = (
            dispatcher.function if isinstance(dispatcher, FunctionDispatcher) else dispatcher.dispatch
        )
        """How one message is dispatched; a return value other than None is a mistake."""
        self.topics: set[str] = set()
        self.pools: list[DispatchPool] = []
        """One for each table that has had a row for it."""
        self._subscribers = subscribers
        self._opened = opened
        self._watched = False
        self._probing = dispatcher if isinstance(dispatcher, Probing) else None
        self._probe_failure: str | None = None
        """Why the last probe of this outage failed, as it was logged."""
        self._abandoned_probes: set[asyncio.Task[None]] = set()
        """Those that have not ended yet."""

    @property
    def is_open(self) -> bool:
        return self.breaker.is_open

    @property
    def is_blocked(self) -> bool:
        """True when a message for it is of no use just now: it is unavailable, or one message tries it."""
        return self.breaker.is_open or (self.breaker.is_half_open and self.gate.dispatching > 0)

    def dispatching(self) -> list[Delivery]:
        """The rows that are with the dispatcher now."""
        return [row for worker in self._workers() for row in worker.deliveries]

    def is_stuck(self, now: float) -> bool:
        """True when it has messages and has acknowledged none for a second."""
        if not self.gate.dispatching:
            return False
        since = min((worker.since for worker in self._workers() if worker.deliveries), default=now)
        return now - max(since, self.breaker.last_ack or 0.0) >= _STUCK_SECONDS

    def _workers(self) -> Iterator[Worker]:
        for pool in self.pools:
            yield from pool.workers

    def acknowledged(self, now: float) -> bool:
        """A message arrived. True when that ends an outage."""
        if not self.breaker.acknowledged(now):
            return False
        self.quarantine.confirmed()
        return self._closed()

    def refused(self, now: float) -> bool:
        """A message was refused. True when that ends an outage."""
        return self.breaker.refused(now) and self._closed()

    def _closed(self) -> bool:
        self._probe_failure = None
        self.quarantine.closed()
        self._notify()
        return True

    def unavailable(self, now: float, rows: Sequence[Delivery], *, broker_full: bool = False) -> bool:
        """The destination is unavailable, as these rows show, or says that it takes nothing. True when it was closed
        before."""
        if self.is_open:
            return False
        same_outage = self._is_same_outage
        if rows and self.breaker.is_half_open:
            self.quarantine.trial_failed(rows[0].message.meta.table)
        was_closed = self.breaker.open(now, broker_full=broker_full)
        self._has_opened((*self.dispatching(), *rows), same_outage=same_outage)
        return was_closed

    def doubt(self, now: float) -> bool:
        """A poison suspect says that the destination is unavailable. True when it was closed before."""
        same_outage = self._is_same_outage
        was_closed = self.breaker.reopen_for_probe(now)
        self._has_opened((), same_outage=same_outage)
        return was_closed

    def trial_over(self) -> None:
        """No row is with the dispatcher: if that decided nothing about a half-open one, another row may try it."""
        if self.breaker.is_half_open and not self.gate.dispatching:
            self._notify()

    async def probe(self, timeout: float) -> bool:
        """Ask for a sign of life; true without asking when the dispatcher cannot ask."""
        if self._probing is None or not self.probes:
            return True
        task = asyncio.create_task(_asked(self._probing), name=f"outbox-probe-{self.name}")
        in_time = await ended_within(task, timeout, f"the probe of {self.name}")
        if not task.done():
            self._abandoned_probes.add(task)
            task.add_done_callback(self._abandoned_probes.discard)
        why = why_failed(task) if in_time else f"not answered within {timeout:g} s"
        if why is not None and why != self._probe_failure:
            self._probe_failure = why
            _logger.warning("the probe of %s failed: %s", self.name, why)
        return why is None

    @property
    def probes(self) -> bool:
        """True when it can be asked: not if it does not hear its cancellation, and each asking abandons a task."""
        return self._probing is not None and len(self._abandoned_probes) < _MAX_ABANDONED_PROBES

    async def watch(self, probe_timeout: float) -> None:
        """Probe from time to time while the destination is unavailable."""
        if self._watched:
            return
        self._watched = True
        try:
            while self.is_open:
                await anyio.sleep(max(self.breaker.retry_at - clock.now(), 0.01))
                if await self.probe(probe_timeout):
                    await self._half_open()
                else:
                    self.breaker.probe_failed(clock.now())
        finally:
            self._watched = False

    async def _half_open(self) -> None:
        now = clock.now()
        yields = self.quarantine.half_opened(now, is_shared=len(self._subscribers) > 1)
        if self.breaker.half_open(now, answered=self.probes):
            self.quarantine.confirmed()
        self._notify()
        if yields:
            await anyio.sleep(yields)
            self.gate.reopen()

    @property
    def _is_same_outage(self) -> bool:
        """Nothing has answered since the opening before."""
        return self.breaker.is_half_open and not self.breaker.probe_answered

    def _has_opened(self, present: Sequence[Delivery], *, same_outage: bool) -> None:
        self.quarantine.opened(present, same_outage=same_outage)
        self._opened.put(self)
        self._notify()

    def _notify(self) -> None:
        for mailbox in self._subscribers:
            mailbox.put(self)


class Destinations:
    """Finds the destination of a topic, once per topic."""

    def __init__(self, root: Dispatcher, backoff: Backoff, patience: float) -> None:
        self._root = root
        self.many: Final = isinstance(root, Routing)
        """True when there may be several."""
        self._backoff = backoff
        self._patience = patience
        self._by_topic: dict[str, Destination] = {}
        self._by_dispatcher: dict[int, Destination] = {}
        self._subscribers: list[Mailbox[Destination]] = []
        self._opened: Mailbox[Destination] = Mailbox()

    def subscribe(self) -> Mailbox[Destination]:
        """A mailbox, for one table, of destinations whose breaker opened, half opened or closed. A notice carries no
        instruction: look at the state when you read it."""
        mailbox = Mailbox[Destination]()
        self._subscribers.append(mailbox)
        return mailbox

    def of(self, topic: str) -> Destination:
        """The destination of a topic. Raises what a router's own ``route`` raises, and what is wrong with its
        answer."""
        destination = self._by_topic.get(topic)
        if destination is None:
            destination = self._destination(leaf_of(self._root, topic))
            if len(self._by_topic) >= MOST_TOPICS:
                self._forget_topics()
            destination.topics.add(topic)
            self._by_topic[topic] = destination
        return destination

    def blocked_topics(self, more: Sequence[Destination] = ()) -> list[str]:
        """Topics whose destination takes nothing just now, as far as seen, and those of ``more`` destinations."""
        return [topic for each in self._all() if each.is_blocked or each in more for topic in each.topics]

    def is_unavailable(self, topic: str) -> bool:
        """True when the destination of a topic is unavailable, as far as seen."""
        destination = self._by_topic.get(topic)
        return destination is not None and destination.is_open

    def stuck(self, now: float) -> list[Destination]:
        """Destinations that do not answer, where there are others."""
        return [each for each in self._all() if each.is_stuck(now)] if self.many else []

    @property
    def are_dispatching(self) -> bool:
        """True when a message is with a dispatcher."""
        return any(each.gate.dispatching for each in self._all())

    @property
    def all_unavailable(self) -> bool:
        """True when there is nowhere to dispatch to: a single destination, and it is unavailable."""
        return not self.many and any(each.is_open for each in self._all())

    @property
    def all_blocked(self) -> bool:
        """True when nothing that is claimed could be dispatched just now: a single destination, and it is blocked."""
        return not self.many and any(each.is_blocked for each in self._all())

    @property
    def are_trying(self) -> bool:
        """True when a half-open trial is under way."""
        return any(each.is_blocked and not each.is_open for each in self._all())

    async def watch(self, probe_timeout: float) -> None:
        """Watch each destination that becomes unavailable. Runs until cancelled."""
        async with anyio.create_task_group() as watching:
            while True:
                for destination in await self._opened.take():
                    watching.start_soon(destination.watch, probe_timeout)

    def _all(self) -> Sequence[Destination]:
        return tuple(self._by_dispatcher.values())

    def _forget_topics(self) -> None:
        """Begin anew. Rows for an unavailable destination are then claimed and released once for each topic."""
        self._by_topic.clear()
        for destination in self._by_dispatcher.values():
            destination.topics.clear()

    def _destination(self, dispatcher: Dispatcher) -> Destination:
        destination = self._by_dispatcher.get(id(dispatcher))
        if destination is None:
            # Its probe is not checked: messages that it can deliver must not fail for that.
            check_dispatches(dispatcher)
            backoff = self._backoff
            if isinstance(dispatcher, Probing):
                backoff = replace(backoff, cap=min(backoff.cap, PROBE_SECONDS))
            destination = Destination(
                dispatcher,
                Breaker(backoff, self._patience),
                subscribers=self._subscribers,
                opened=self._opened,
            )
            self._by_dispatcher[id(dispatcher)] = destination
        return destination


async def _asked(dispatcher: Probing) -> None:
    await dispatcher.probe()

"""A leaf dispatcher of a relay: what is in flight to it, and its outages, shared by all tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.dispatcher import BatchDispatcher, Dispatcher, FunctionDispatcher, Probing, name_of
from outbox_core.relay import clock
from outbox_core.relay.bounded import ended_within
from outbox_core.relay.breaker import Breaker, BreakerState
from outbox_core.relay.summaries import why_failed

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_core.meta import DispatchedMessage
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.store import RowId

_STUCK_SECONDS: Final = 1.0
_YIELDING_SECONDS: Final = 0.1
"""For which a table whose message went ahead in vain leaves the next try to another table."""
_MOST_DEAF: Final = 3
_MAX_WITNESSES: Final = 10_000
_logger: Final = logging.getLogger("outbox_core.relay")


class Leaf:
    """One destination: its dispatcher, its breaker, what is in flight to it, and the topics seen for it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        breaker: Breaker,
        changed: Callable[[Leaf], None],
        *,
        is_shared: Callable[[], bool] = lambda: False,
    ) -> None:
        self.dispatcher = dispatcher
        self.name = name_of(dispatcher)
        self.breaker = breaker
        self.batches = isinstance(dispatcher, BatchDispatcher)
        self.dispatch: Callable[[DispatchedMessage], Awaitable[object]] = (
            dispatcher.function if isinstance(dispatcher, FunctionDispatcher) else dispatcher.dispatch
        )
        """How one message is dispatched; whatever it returns besides None is a mistake."""
        self.in_flight: dict[Delivery, float] = {}
        """The rows that are with the dispatcher now, and since when."""
        self.topics: set[str] = set()
        self._changed = changed
        self._opened = anyio.Event()
        self._probing = dispatcher if isinstance(dispatcher, Probing) else None
        self._said: str | None = None
        """Why the last probe of this outage failed, as it was logged."""
        self._deaf: set[asyncio.Task[None]] = set()
        """Probes that were left behind and have not ended yet."""
        self.closed_at = 0.0
        """When its last outage was seen to be over."""
        self._witnessed: dict[RowId, UUID] = {}
        """Rows that were there when it went away, each with the token it had."""
        self._alone: Delivery | None = None
        """The suspect that is with the dispatcher, or waits for all others to be gone."""
        self._waiting: dict[Callable[[], None], None] = {}
        self._is_shared = is_shared
        """Whether several tables have messages for it."""
        self._yielding: str | None = None
        """The table whose message was the last to go ahead in vain."""
        self._yields_until = 0.0

    @property
    def is_open(self) -> bool:
        return self.breaker.state is BreakerState.OPEN

    @property
    def is_shut(self) -> bool:
        """Whether a message for it is of no use just now: it is away, or one has gone ahead to see."""
        return self.is_open or (self.breaker.state is BreakerState.HALF_OPEN and bool(self.in_flight))

    def is_stuck(self, now: float) -> bool:
        """Whether it has messages and has acknowledged none for a second."""
        since = next(iter(self.in_flight.values()), now)
        return now - max(since, self.breaker.last_ack or 0.0) >= _STUCK_SECONDS

    def starts(self, row: Delivery, now: float) -> bool:
        """Whether a row goes to the dispatcher now: everything does while messages flow, one at a time when it is
        being seen whether they do, and a suspect only alone."""
        breaker = self.breaker
        if self._alone is not None and self._alone is not row:
            return False
        if breaker.suspects or breaker.state is not BreakerState.CLOSED:
            if breaker.state is BreakerState.OPEN:
                return False
            suspect = breaker.is_suspect(row.id)
            if suspect:
                # From now on nobody else begins, of whichever table: its turn would never come.
                self._alone = row
            trying = breaker.state is BreakerState.HALF_OPEN
            if self.in_flight and (suspect or trying):
                return False
            if trying and now < self._yields_until and row.message.meta.table == self._yielding:
                return False
        self.in_flight[row] = now
        return True

    def ended(self, row: Delivery) -> None:
        """A row is no longer with the dispatcher."""
        self.in_flight.pop(row, None)
        was_alone = self._alone is row
        if was_alone:
            self._alone = None
        if self._waiting and (was_alone or not self.in_flight):
            self._poke()
        if not self.in_flight and self.breaker.state is BreakerState.HALF_OPEN:
            # What became of it is settled first, which mostly ends this state.
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        if not self.in_flight and self.breaker.state is BreakerState.HALF_OPEN:
            self._changed(self)

    def _poke(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for poke in waiting:
            poke()

    def let_go(self, rows: Sequence[Delivery]) -> None:
        """These rows will not come to the dispatcher: nobody waits for them to be alone with it."""
        for row in rows:
            self.ended(row)

    def when_free(self, poke: Callable[[], None]) -> None:
        """Call back, once, when nothing is in flight, or nobody has to be alone any more: the rows of several tables
        may wait for their turn here."""
        self._waiting[poke] = None

    def keeps_waiting(self, poke: Callable[[], None]) -> bool:
        """Whether `when_free` will call back."""
        busy = bool(self.in_flight) or clock.now() < self._yields_until
        trying = busy and self.breaker.state is BreakerState.HALF_OPEN
        return poke in self._waiting and (trying or self._alone is not None)

    def open(self, now: float, more: Sequence[Delivery], *, told: bool = False) -> bool:
        """The destination is away, or has ``told`` that it takes nothing. True when that is news."""
        if more and self.breaker.state is BreakerState.HALF_OPEN:
            self._yielding = more[0].message.meta.table
        present = () if self.is_open else self._new_witnesses((*self.in_flight, *more))
        news = self.breaker.open(now, [row.id for row in present], told=told)
        self._opened.set()
        self._changed(self)
        return news

    def _new_witnesses(self, rows: Sequence[Delivery]) -> Sequence[Delivery]:
        """Those that have not seen the destination go away in this lease: of however many times, a lease sees one."""
        if len(self._witnessed) > _MAX_WITNESSES:
            self._witnessed.clear()
        new = [row for row in rows if self._witnessed.get(row.id) != row.token]
        self._witnessed.update((row.id, row.token) for row in new)
        return new

    def doubt(self, now: float) -> bool:
        """A suspect says that the destination is away. True when that is news."""
        news = self.breaker.doubt(now)
        self._opened.set()
        self._changed(self)
        return news

    def acknowledged(self, now: float) -> bool:
        """A message arrived. True when that ends an outage."""
        return self.breaker.acknowledged(now) and self._closed(now)

    def refused(self) -> bool:
        """A message was refused, by whomever. True when that ends an outage."""
        return self.breaker.refused() and self._closed(clock.now())

    def _closed(self, now: float) -> bool:
        self.closed_at, self._said, self._yielding = now, None, None
        self._changed(self)
        return True

    async def probe(self, timeout: float) -> bool:
        """Ask for a sign of life; true without asking when the dispatcher cannot ask."""
        if self._probing is None or not self.probes:
            return True
        task = asyncio.create_task(_asked(self._probing), name=f"outbox-probe-{self.name}")
        in_time = await ended_within(task, timeout, f"the probe of {self.name}")
        if not task.done():
            self._deaf.add(task)
            task.add_done_callback(self._deaf.discard)
        why = why_failed(task) if in_time else f"not answered within {timeout:g} s"
        if why is not None and why != self._said:
            self._said = why
            _logger.warning("the probe of %s failed: %s", self.name, why)
        return why is None

    @property
    def probes(self) -> bool:
        """Whether it can be asked: not if it cannot be heard any more, and others are left behind for each asking."""
        return self._probing is not None and len(self._deaf) < _MOST_DEAF

    async def watch(self, probe_timeout: float) -> None:
        """While the destination is away, look from time to time whether it is back. Runs until cancelled."""
        while True:
            await self._opened.wait()
            self._opened = anyio.Event()
            while self.is_open:
                await anyio.sleep(max(self.breaker.retry_at - clock.now(), 0.01))
                if await self.probe(probe_timeout):
                    yields = self._yielding is not None and self._is_shared()
                    self._yields_until = clock.now() + _YIELDING_SECONDS if yields else 0.0
                    self.breaker.half_open(clock.now(), answered=self.probes)
                    self._changed(self)
                    if yields:
                        await anyio.sleep(_YIELDING_SECONDS)
                        self._poke()
                else:
                    self.breaker.probe_failed(clock.now())


async def _asked(dispatcher: Probing) -> None:
    await dispatcher.probe()

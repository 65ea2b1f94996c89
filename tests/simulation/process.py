"""A simulated process with one relay in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from random import Random

from outbox_core.dispatcher import Dispatcher
from outbox_core.errors import StorageError
from outbox_core.observer import BreakerOpened, Event, LeaderGained, LeaseLost
from outbox_core.relay import Relay
from outbox_core.table import TableName
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.loop import PROCESS, VirtualLoop
from tests.simulation.plan import Plan
from tests.simulation.record import Record

_OBSERVED = (LeaderGained, LeaseLost, BreakerOpened)


class Process:
    """Started when made. `kill` ends it as SIGKILL would: not one more line of its code runs."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        tables: Sequence[TableName],
        store: FaultyStore,
        dispatcher: Dispatcher,
        record: Record,
        random: Random,
        loop: VirtualLoop,
    ) -> None:
        self.name = name
        self.store = store
        self.killed = asyncio.Event()
        self._record = record
        self._loop = loop
        self._relay = Relay(
            lambda: store,
            tables=tables,
            dispatcher=dispatcher,
            observers=(self._observe,),
            random=random.random,
            **plan.settings,
        )
        context = copy_context()
        context.run(PROCESS.set, name)
        self.task = loop.create_task(self._main(), context=context)

    async def _main(self) -> None:
        try:
            await self._relay.run(signals=False)
        except StorageError as error:
            self._record.say(f"{self.name} could not start: {error}")
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._record.violated("O16", f"{self.name} died of {error!r}")

    def _observe(self, event: Event) -> None:
        self._record.counts[type(event).__name__] += 1
        if isinstance(event, _OBSERVED):
            self._record.say(f"{self.name} {type(event).__name__}")

    async def wait(self) -> None:
        """Until it has ended, one way or another."""
        killed = asyncio.ensure_future(self.killed.wait())
        await asyncio.wait({self.task, killed}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()

    @property
    def is_alive(self) -> bool:
        return not self.task.done() and not self.killed.is_set()

    def kill(self) -> None:
        self._record.counts["kill"] += 1
        self._record.say(f"{self.name} is killed")
        self._loop.freeze(self.name)
        self.store.inner.abort()
        self.killed.set()

    async def freeze(self, seconds: float) -> None:
        self._record.counts["freeze"] += 1
        self._record.say(f"{self.name} is frozen for {seconds:.3f}")
        self._loop.freeze(self.name)
        await asyncio.sleep(seconds)
        if not self.killed.is_set():
            self._record.say(f"{self.name} is thawed")
            self._loop.thaw(self.name)

    async def cut_off(self, seconds: float) -> None:
        self._record.counts["cut off"] += 1
        self._record.say(f"{self.name} is cut off from the database for {seconds:.3f}")
        self.store.cut_off = True
        await asyncio.sleep(seconds)
        self.store.cut_off = False

    async def stop(self, grace: float) -> None:
        self._record.counts["stop"] += 1
        self._record.say(f"{self.name} is asked to stop within {grace:.3f}")
        began = self._record.now()
        self.store.stop_asked_at = began
        await self._relay.stop(grace)
        took = self._record.now() - began
        if took > grace + 1.0 + 1e-6:
            self._record.violated("O15", f"stop({grace:g}) took {took:g} s")

    async def cancel(self) -> None:
        self._record.counts["cancel"] += 1
        self._record.say(f"{self.name} is cancelled")
        began = self._record.now()
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=10.0)
        took = self._record.now() - began
        if self.task.done() and took > 3.0 + 1e-6:
            self._record.violated("O15", f"a cancellation took {took:g} s")

    async def bury(self) -> None:
        """After the checks: let what is left of it unwind, so that no task outlives the run."""
        self.store.cut_off = False
        self.store.rate = 0.0
        self.store.inner.abort()
        self._loop.thaw(self.name)
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=60.0)

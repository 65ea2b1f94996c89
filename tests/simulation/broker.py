"""Brokers that fail in every way a broker can, and dispatchers to them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from uuid import UUID

from outbox_core.dispatcher import Dispatcher, Outcome
from outbox_core.errors import BrokerUnavailable, DispatchTimeout, PermanentError, RetryAfter
from outbox_core.meta import DispatchedMessage
from tests.simulation.loop import PROCESS
from tests.simulation.record import Record
from tests.simulation.sight import Sight

FAULTS = (
    "error", "error", "error after", "retry after", "unavailable", "hang", "hang after", "slow", "slow",
    "permanent",
    "ack then crash", "own cancellation",
)  # fmt: skip
QUICK = 0.05
LEISURELY = 0.4
"""Long enough for messages to be written and claimed while an earlier one of their key is being dispatched."""


@dataclass(frozen=True)
class Delivery:
    table: str
    event_id: UUID
    at: float


@dataclass
class Broker:
    """One destination. ``mode`` is what it does just now: ``up``, ``refusing`` or ``silent``."""

    name: str
    record: Record
    random: Random
    fault_rate: float
    crash: Callable[[str], None]
    """Ends a process without warning."""
    admitted: Callable[[str, DispatchedMessage], None]
    """Checks that a process may dispatch a message now."""
    sight: Sight
    ordered: bool
    deliveries: list[Delivery]
    """Of all brokers, in the order of arrival."""
    latency: float = QUICK
    """At most so many seconds pass until an answer comes."""
    mode: str = "up"
    own_failures: Counter[tuple[str, UUID]] = field(default_factory=Counter)
    busy_keys: set[tuple[str, str, UUID, str]] = field(default_factory=set)

    async def receive(self, message: DispatchedMessage) -> None:
        """One message arrives from the present process."""
        process, meta = PROCESS.get(), message.meta
        self.admitted(process, message)
        key = (
            None if meta.key is None or not self.ordered else (process, meta.table, meta.tenant_id, meta.key)
        )
        if key is not None:
            if key in self.busy_keys:
                self.record.violated("key", f"two messages of {meta.key} in flight at once")
            self.busy_keys.add(key)
        try:
            await self._receive(process, message, json.loads(message.payload)["kind"])
            self.sight.acknowledged(process, meta)
        finally:
            if key is not None:
                self.busy_keys.discard(key)

    def told(self, message: DispatchedMessage, outcome: Outcome) -> None:
        """The relay has heard what became of a message, in time to believe it."""
        if isinstance(outcome, PermanentError | RetryAfter | ValueError):
            self.own_failures[message.meta.table, message.meta.event_id] += 1

    async def _receive(self, process: str, message: DispatchedMessage, kind: str) -> None:
        counts, random = self.record.counts, self.random
        fault = random.choice(FAULTS) if random.random() < self.fault_rate else ""
        latency = random.uniform(0.001, self.latency)
        fault = {"up": fault, "refusing": "unavailable", "silent": "hang"}[self.mode]
        fault = fault if kind == "fine" or self.mode != "up" else kind
        if fault:
            counts[f"broker: {fault}"] += 1
        self.record.say(f"{process} dispatches {_name(message)} attempt {message.meta.attempts} {fault}")
        match fault:
            case "hang":
                await asyncio.sleep(100.0)
            case "hang after":
                self._deliver(message)
                await asyncio.sleep(100.0)
            case "slow":
                latency = random.uniform(0.5, 2.5)
            case "killer":
                self.crash(process)
                await asyncio.sleep(1e6)
            case "ack then crash":
                await asyncio.sleep(latency)
                self._deliver(message)
                self.crash(process)
                await asyncio.sleep(1e6)
        await asyncio.sleep(latency)
        match fault:
            case "error" | "poison":
                raise ValueError("not this time")
            case "error after":
                self._deliver(message)
                raise ValueError("acknowledged, but the answer could not be read")
            case "retry after":
                raise RetryAfter(timedelta(seconds=random.uniform(0, 3)))
            case "unavailable" | "dropper":
                raise BrokerUnavailable("the connection was refused")
            case "permanent" | "refused":
                raise PermanentError("never")
            case "own cancellation":
                raise asyncio.CancelledError
        self._deliver(message)
        if random.random() < 0.3:
            await asyncio.sleep(latency)

    def _deliver(self, message: DispatchedMessage) -> None:
        self.deliveries.append(Delivery(message.meta.table, message.meta.event_id, self.record.now()))
        self.record.say(f"{self.name} has {_name(message)}")

    async def answer(self) -> None:
        """The round trip of a probe."""
        self.record.counts["probe"] += 1
        if self.mode == "silent":
            await asyncio.sleep(100.0)
        await asyncio.sleep(0.01)
        if self.mode == "refusing":
            raise BrokerUnavailable("still away")


class Single:
    """Takes one message at a time."""

    def __init__(self, broker: Broker, timeout: float) -> None:
        self.broker = broker
        self.name = broker.name
        self._timeout = timeout

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        time = asyncio.get_running_loop().time
        deadline = time() + self._timeout
        try:
            await self.broker.receive(message)
        except Exception as error:
            if time() < deadline:
                self.broker.told(message, error)
            raise


class SingleProbing(Single):
    async def probe(self) -> None:
        await self.broker.answer()


class Window(Single):
    """Takes many, and answers for all of them at the deadline."""

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        tasks = [asyncio.ensure_future(self.broker.receive(message)) for message in messages]
        try:
            time = asyncio.get_running_loop().time
            await asyncio.wait(tasks, timeout=deadline - time())
            outcomes = [_outcome(task) for task in tasks]
            if time() <= deadline + 0.001:
                for message, outcome in zip(messages, outcomes, strict=True):
                    self.broker.told(message, outcome)
            return outcomes
        finally:
            for task in tasks:
                task.cancel()


class WindowProbing(Window, SingleProbing): ...


class Router:
    """Topics beginning with ``a.`` to one broker, the others to the other."""

    def __init__(self, first: Dispatcher, second: Dispatcher) -> None:
        self._first = first
        self._second = second

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        await self.route(message.meta.topic).dispatch(message)

    def route(self, topic: str, /) -> Dispatcher:
        if topic.startswith("nowhere."):
            raise ValueError(f"no route for {topic}")
        return self._first if topic.startswith("a.") else self._second


def dispatcher_for(broker: Broker, *, batches: bool, probes: bool, timeout: float) -> Dispatcher:
    kinds = {
        (False, False): Single,
        (False, True): SingleProbing,
        (True, False): Window,
        (True, True): WindowProbing,
    }
    return kinds[batches, probes](broker, timeout)


def _outcome(task: asyncio.Future[None]) -> Outcome:
    if not task.done():
        return DispatchTimeout("not acknowledged in time")
    return BrokerUnavailable("cancelled") if task.cancelled() else task.exception()


def _name(message: DispatchedMessage) -> str:
    return f"{message.meta.table}#{message.meta.sequence}"

"""A run: writers, relays and everything that goes wrong, then a quiet end and the checks."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from random import Random

from outbox_core.meta import DispatchedMessage
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.simulation import checks
from tests.simulation.broker import LEISURELY, QUICK, Broker, Delivery, Router, dispatcher_for
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.loop import VirtualLoop
from tests.simulation.ordered import ordered_sets
from tests.simulation.plan import CHAOS_SECONDS, plan_of
from tests.simulation.process import Process
from tests.simulation.record import Record
from tests.simulation.sight import Sight
from tests.simulation.writers import Writers

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


def run(seed: int) -> Record:
    """The run of a seed; always the same one."""
    logger = logging.getLogger("outbox_core")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # thousands of faults make a log nobody reads
    loop = VirtualLoop()
    record = Record(seed)
    try:
        asyncio.set_event_loop(loop)
        with ordered_sets():
            loop.run_until_complete(World(seed, loop, record).main())
        left = asyncio.all_tasks(loop)
        if left:
            record.violations.append(f"tasks left: {sorted(task.get_name() for task in left)}")
        record.violations.extend(f"unhandled: {failure}" for failure in loop.failures)
    finally:
        logger.setLevel(level)
        asyncio.set_event_loop(None)
        loop.close()
    return record


class World:
    """Everything of one run."""

    def __init__(self, seed: int, loop: VirtualLoop, record: Record) -> None:
        self.plan = plan_of(seed)
        self.record = record
        self._loop = loop
        self._random = Random(f"world {seed}")
        self.store = MemoryStore(self._database_time, takeover=self.plan.settings["takeover"])
        self.tables = [TableName("public", f"table{n}_outbox") for n in range(self.plan.tables)]
        self.kept = {str(name): self.store.table(name) for name in self.tables}
        self.deliveries: list[Delivery] = []
        self.sight = Sight(record, blocks=self.plan.settings["on_dead"] == "block")
        self.brokers = [
            Broker(
                name,
                record,
                Random(f"{name} {seed}"),
                self.plan.dispatch_faults,
                self.crash,
                self.may_dispatch,
                self.sight,
                self.plan.ordered,
                self.deliveries,
                latency=LEISURELY if self.plan.hasty else QUICK,
            )
            for name in ("first", "second")
        ]
        self.writers = Writers(
            self.store, self.plan, self.tables, record, Random(f"writers {seed}"), self.sight
        )
        self._seed = seed
        self._processes: dict[str, Process] = {}
        self._quiet = False
        self._over = False
        self.stopped: list[Process] = []
        """The relays that were asked to stop at the very end."""

    def _database_time(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time())

    async def main(self) -> None:
        start = self.record.now()
        writers = [
            asyncio.ensure_future(self.writers.write(start + CHAOS_SECONDS)) for _ in range(self.plan.writers)
        ]
        keepers = [asyncio.ensure_future(self._keep(slot)) for slot in range(self.plan.relays)]
        chaos = asyncio.ensure_future(self._chaos(start + CHAOS_SECONDS))
        await asyncio.gather(chaos, *writers)
        self._heal()
        await checks.wait_until_resolved(self)
        self._over = True
        self.stopped = [process for process in self._processes.values() if process.is_alive]
        await asyncio.gather(*(process.stop(5.0) for process in self.stopped))
        await asyncio.wait(keepers, timeout=60.0)
        checks.check(self)
        self.record.close()
        for process in self._processes.values():
            await process.bury()

    def crash(self, name: str) -> None:
        process = self._processes[name]
        if not process.killed.is_set():
            process.kill()

    def may_dispatch(self, name: str, message: DispatchedMessage) -> None:
        """No dispatch starts without a lease that is good for the whole of it, or out of order."""
        meta = message.meta
        memory = self.store.table(TableName.parse(meta.table))
        row = memory.rows.get(meta.event_id)
        needed = timedelta(seconds=self.plan.settings["dispatch_timeout"])
        ttl = timedelta(seconds=self.plan.settings["lock_ttl"])
        if row is None or row.lock_token not in self._processes[name].store.tokens or row.locked_at is None:
            self.record.violated("O8", f"{name} dispatches #{meta.sequence} without a lease")
        elif row.locked_at + ttl < self._database_time() + needed:
            self.record.violated("O8", f"{name} dispatches #{meta.sequence} with too short a lease")
        if row is not None and self.plan.ordered:
            self.sight.dispatched(name, memory, row, meta.table)
        if meta.attempts > self.plan.settings["max_attempts"]:
            self.record.violated("O9", f"#{meta.sequence} is dispatched in attempt {meta.attempts}")

    async def _keep(self, slot: int) -> None:
        """A supervisor: starts a process again whenever it has ended."""
        number = 0
        while not self._over:
            number += 1
            process = self._start(f"relay-{slot}.{number}")
            await process.wait()
            await asyncio.sleep(self._random.uniform(0.1, 2.0))

    def _start(self, name: str) -> Process:
        plan, random = self.plan, Random(f"{name} {self._seed}")
        store = FaultyStore(
            self.store.connect(), self.record, random,
            timeout=plan.settings["database_timeout"],
            rate=0.0 if self._quiet else plan.store_faults,
            shields=plan.shields,
            sight=self.sight,
            search_seconds=plan.search_seconds,
        )  # fmt: skip
        timeout = plan.settings["dispatch_timeout"]
        leaves = [
            dispatcher_for(broker, batches=plan.batches, probes=plan.probes, timeout=timeout)
            for broker in self.brokers
        ]
        process = Process(name, plan, self.tables, store, Router(*leaves), self.record, random, self._loop)
        self._processes[name] = process
        return process

    async def _chaos(self, until: float) -> None:
        """One misfortune after another; several may overlap."""
        random = self._random
        under_way: list[asyncio.Future[None]] = []
        while self.record.now() < until:
            await asyncio.sleep(random.uniform(0.5, 9.0))
            left = max(until - self.record.now(), 0.1)
            alive = [process for process in self._processes.values() if process.is_alive]
            process = random.choice(alive) if alive else None
            action = random.choice(
                ("kill", "freeze", "freeze", "cut off", "stop", "cancel", "outage", "outage")
            )
            seconds = min(random.choice((random.uniform(0.1, 4.0), random.uniform(4.0, 20.0))), left)
            if action == "outage":
                under_way.append(asyncio.ensure_future(self._outage(random.choice(self.brokers), seconds)))
            elif process is None or self._loop.is_frozen(process.name):
                continue
            elif action == "kill":
                process.kill()
            elif action == "freeze":
                under_way.append(asyncio.ensure_future(process.freeze(seconds)))
            elif action == "cut off":
                under_way.append(asyncio.ensure_future(process.cut_off(seconds)))
            elif action == "stop":
                await process.stop(random.choice((0.0, 0.5, 3.0, 10.0)))
            else:
                await process.cancel()
        await asyncio.gather(*under_way)

    async def _outage(self, broker: Broker, seconds: float) -> None:
        broker.mode = self._random.choice(("refusing", "silent"))
        self.record.counts[f"outage: {broker.mode}"] += 1
        self.record.say(f"{broker.name} is {broker.mode} for {seconds:.3f}")
        await asyncio.sleep(seconds)
        broker.mode = "up"

    def _heal(self) -> None:
        self.record.say("all is well from now on")
        self._quiet = True
        for broker in self.brokers:
            broker.mode = "up"
            broker.fault_rate = 0.0
            broker.latency = QUICK
        for process in self._processes.values():
            process.store.rate = 0.0
            process.store.cut_off = False

"""Servers, proxies and processes of one run."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from tests.faults import brokers, roles
from tests.faults.clocks import Clock, shim
from tests.faults.journal import Tail, eventually
from tests.faults.plan import GRACE, TABLE, Plan
from tests.faults.processes import Place, RelayPlace, WriterPlace
from tests.faults.recovery import Recovery, recovery
from tests.faults.servers import ClockedPostgres, ProxiedKafka
from tests.services.nats import NatsServer
from tests.services.proxy import FaultProxy
from tests.services.rabbitmq import RabbitMQServer
from tests.services.run import base_folder
from tests.services.server import Server
from tests.services.session import Services

SERVERS: dict[str, type[Server]] = {"kafka": ProxiedKafka, "nats": NatsServer, "amqp": RabbitMQServer}
RECOVERY_SECONDS = 30.0
QUIET_SECONDS = 90.0
EXIT_SECONDS = GRACE + 6.0
_POLL_SECONDS = 0.05


@dataclass(slots=True)
class World:
    """What the nemesis can break. `relay_proxies` has one for each relay's database; brokers have one for all."""

    plan: Plan
    random: random.Random
    postgres: ClockedPostgres
    broker: Server
    dsn: str
    relays: list[RelayPlace]
    writers: list[WriterPlace]
    consumers: list[Place]
    relay_proxies: list[FaultProxy]
    writer_proxy: FaultProxy
    broker_proxy: FaultProxy
    relay_clocks: list[Clock]
    events: Tail
    history: Tail
    arrivals: Tail
    asked: Tail
    """What relays asked of the database and handed to the broker."""
    points: list[str] = field(default_factory=list[str])
    """Moments at which a relay is still to die; refilled when all had their turn."""
    visited: Counter[str] = field(default_factory=Counter[str])
    """Moments at which a relay has died, with how often."""
    back: float | None = None
    """When what was broken was whole again, of a fault that goes on to wait until relays have noticed: their time to
    work again runs from then on."""

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        """A session straight to the server, which may write whatever the others may."""
        connection: Any = await asyncpg.connect(self.dsn, timeout=10, command_timeout=20)
        try:
            await connection.execute("SET default_transaction_read_only = off")
            yield connection
        finally:
            connection.terminate()

    def leader(self) -> RelayPlace | None:
        """The relay that leads, as far as relays have told; any that runs when all work side by side."""
        alive = [place for place in self.relays if place.child is not None and place.exit_code is None]
        if not self.plan.ordered:
            told = {line["relay"] for line in self.events.since(0, "Published")}
            return self.random.choice([place for place in alive if place.name in told] or [None])
        leading = ""
        for line in self.events.since(0, "LeaderGained", "LeaderLost"):
            if line["name"] == "LeaderGained":
                leading = line["relay"]
            elif line["relay"] == leading:
                leading = ""
        return next((place for place in alive if place.name == leading), None)

    async def until_leader(self, within: float = RECOVERY_SECONDS) -> RelayPlace:
        found: RelayPlace = await eventually(self.leader, within, "no relay leads")
        return found

    async def until_running(self) -> None:
        """Wait until every relay is so far that it can be told to stop."""
        for relay in self.relays:
            await self.events.until(0, "Running", within=RECOVERY_SECONDS, relay=relay.name)

    def proxy_of(self, relay: RelayPlace) -> FaultProxy:
        return self.relay_proxies[self.relays.index(relay)]

    async def until_working(self, since: float | None = None, within: float = RECOVERY_SECONDS) -> Recovery:
        """Wait until messages are published again, after ``since`` or from now on: by one relay where one leads, by
        every relay that runs where all work side by side. Whoever is silent for so long is named in the answer."""
        since = time.monotonic() if since is None else since
        deadline = time.monotonic() + within
        while True:
            alive = {
                place.name for place in self.relays if place.child is not None and place.exit_code is None
            }
            found = recovery(
                since, self.events.since(since, "Published"), None if self.plan.ordered else alive
            )
            if not found.silent:
                return found
            if time.monotonic() > deadline:
                return replace(found, silent=f"{found.silent} within {within:g} s")
            await asyncio.sleep(_POLL_SECONDS)

    async def until_delivered(self, within: float = QUIET_SECONDS) -> int:
        """Wait until nothing is left to deliver; how many messages were left when time was up."""
        deadline = time.monotonic() + within
        async with self.admin() as admin:
            while left := await admin.fetchval(
                f"SELECT count(*) FROM {TABLE} WHERE published_at IS NULL AND dead_at IS NULL"  # noqa: S608
            ):
                if time.monotonic() > deadline:
                    return int(left)
                await asyncio.sleep(0.2)
        return 0

    def keep_journals(self) -> Path:
        """Copy what every process told to a folder that outlives the run, and name it."""
        plan = self.plan
        mode = "ordered" if plan.ordered else "side-by-side"
        folder = base_folder() / f"faults-{plan.seed}-{plan.broker}-{mode}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.events.path.parent, folder)
        return folder

    def unplanned_ends(self) -> list[str]:
        """Processes that ended by themselves, with their exit codes."""
        places: list[Place] = [*self.relays, *self.writers, *self.consumers]
        return [end for place in places for end in place.unplanned_ends()]


@asynccontextmanager
async def opened(plan: Plan) -> AsyncIterator[World]:
    """A world with everything running; gone when the block ends, whatever happens in it."""
    services = Services()
    try:
        async with AsyncExitStack() as stack:
            world = await _build(plan, services, stack)
            for relay in world.relays:
                relay.start()
            for consumer in world.consumers:
                consumer.start()
            for writer in world.writers:
                writer.start()
            yield world
    finally:
        await asyncio.to_thread(services.close)


async def _build(plan: Plan, services: Services, stack: AsyncExitStack) -> World:
    def start(kind: type[Server]) -> Any:
        server = kind(services.run, services.locate(kind, private=True), private=True)
        server.start()
        return server

    postgres, broker = await asyncio.gather(
        asyncio.to_thread(start, ClockedPostgres), asyncio.to_thread(start, SERVERS[plan.broker])
    )
    dsn: str = postgres.dsn("postgres")
    await roles.create(dsn)
    create = (
        (lambda topic: broker.create_topic(topic, partitions=brokers.PARTITIONS))
        if plan.broker == "kafka"
        else None
    )
    await brokers.prepare(plan.broker, broker.address, create)
    relay_proxies = [await stack.enter_async_context(FaultProxy.to_postgres(dsn)) for _ in range(plan.relays)]
    writer_proxy = await stack.enter_async_context(FaultProxy.to_postgres(dsn))
    kafka = broker if isinstance(broker, ProxiedKafka) else None
    broker_proxy = await stack.enter_async_context(
        FaultProxy.to(
            "127.0.0.1", kafka.behind_proxy if kafka else broker.port, listen=kafka.proxy_port if kafka else 0
        )
    )
    folder = services.run.folder_for("faults")
    library = await asyncio.to_thread(shim, folder)
    clocks = [Clock(library, folder / f"clock-{number}") for number in range(plan.relays)]
    events, history, arrivals, asked = (
        folder / f"{name}.jsonl" for name in ("events", "history", "arrivals", "asked")
    )
    relay_orders = {
        "broker": plan.broker,
        "address": _through(broker.address, broker_proxy.port),
        "journal": str(events),
        "account": str(asked),
        "settings": plan.settings,
        "cleaner": plan.cleaner,
        "grace": GRACE,
    }
    writer_orders = {
        "dsn": roles.address(writer_proxy.dsn(dsn), roles.WRITER),
        "history": str(history),
        "keys": plan.keys,
        "ordered": plan.ordered,
        "rate": plan.rate,
    }
    consumer_orders = {"broker": plan.broker, "address": broker.address, "journal": str(arrivals)}
    environment = Clock(None, folder / "clock").environment
    log = folder / "processes.log"
    run = services.run

    def where(base: str) -> dict[str, Any]:
        return {"run": run, "base": base, "log": log}

    return World(
        plan=plan,
        random=random.Random(f"{plan.seed}:{plan.broker}:{plan.ordered}"),
        postgres=postgres,
        broker=broker,
        dsn=dsn,
        relays=[
            RelayPlace(
                **where(f"r{number}"),
                module="tests.faults.relay_process",
                orders=relay_orders,
                environment=clocks[number].environment,
                dsn=roles.address(relay_proxies[number].dsn(dsn), roles.RELAY),
            )
            for number in range(plan.relays)
        ],
        writers=[
            WriterPlace(
                **where(f"w{number}"),
                module="tests.faults.writer_process",
                orders=writer_orders,
                environment=environment,
                seed=plan.seed,
            )
            for number in range(plan.writers)
        ],
        consumers=[
            Place(
                **where(queue),
                module="tests.faults.consumer_process",
                orders={**consumer_orders, "queue": queue, "group": queue == brokers.GROUP},
                environment=environment,
            )
            for queue in (brokers.LIVE, brokers.GROUP)
        ],
        relay_proxies=relay_proxies,
        writer_proxy=writer_proxy,
        broker_proxy=broker_proxy,
        relay_clocks=clocks,
        events=Tail(events),
        history=Tail(history),
        arrivals=Tail(arrivals),
        asked=Tail(asked),
    )


def _through(address: str, port: int) -> str:
    """The same address, led through the proxy."""
    if "://" not in address:
        return f"127.0.0.1:{port}"
    url = urlsplit(address)
    user, at, _ = url.netloc.rpartition("@")
    return url._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()

"""How fast a relay empties a backlog into each broker, and how soon a committed message is with a consumer.

    python -m benchmarks.brokers [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

Each figure stands beside the broker's own client at its best (``plain_clients``), which has the same messages ready and
awaits every acknowledgement. A relay does that and drains a table besides, so the rate it is held against is
``1 / (1 / plain + 1 / drain)``, with the drain of the same rows into a dispatcher that does nothing. Brokers are
private ones with their default settings, or those of the environment (``OUTBOX_TEST_KAFKA_URL`` and so on);
``OUTBOX_BENCHMARK_BROKERS=kafka,nats`` leaves some out.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aio_pika
import asyncpg
import nats

from benchmarks import common, environment, plain_clients, processes, running
from benchmarks.broker_process import PAYLOAD, url
from benchmarks.catalogue import Mode
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Place
from benchmarks.consumers import CONSUMERS
from benchmarks.figures import Figure, Missing, Section, figure, percentile
from benchmarks.plain_clients import STREAM, TOPIC
from benchmarks.processes import drained
from benchmarks.turns import guarded, rotated
from outbox_core.dispatcher import load_dispatcher
from outbox_core.relay import Relay
from outbox_core.testing.contracts.samples import sample
from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.server import StartFailed
from tests.services.session import Services
from tests.services.sources import Missing as NotThere

SERVERS: dict[str, Any] = {"kafka": KafkaServer, "nats": NatsServer, "amqp": RabbitMQServer}
WINDOW = 1000
"""Messages that the client alone has on their way at a time: as many as a relay's claims grow to."""
BAR = 0.8
OVERLAP = (
    "The bound adds up what a relay does side by side: it claims and records while messages are on their way. So with a"
    " core to spare it may pass the bound, which is a yardstick and no ceiling; the client alone is the ceiling."
)
AT_ITS_BEST = (
    "They are ready before the clock starts, and it does what the adapter does to be quick: for NATS one inbox takes"
    " all acknowledgements, for AMQP aiormq is called below aio-pika and its writes are gathered, for Kafka batches"
    " hold 256 KiB."
)
RATE = 100
"""Messages a second while latencies are taken."""


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    repeats: int
    seconds: float
    latency_rounds: int


SIZES = {
    Mode.SMOKE: Size(600, 1, 0.2, 1),
    Mode.QUICK: Size(5_000, 3, 0.6, 1),
    Mode.FULL: Size(20_000, 5, 5.0, 3),
}


@dataclass
class Rounds:
    """What each round gave for one broker: rows a second, processor time a row in µs, and milliseconds of latency."""

    relay: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    relay_cpu: list[float] = field(default_factory=list)
    plain_cpu: list[float] = field(default_factory=list)
    making_cpu: list[float] = field(default_factory=list)
    relay_latency: list[list[float]] = field(default_factory=list)
    plain_latency: list[list[float]] = field(default_factory=list)
    failure: str | None = None


async def prepare(kind: str, address: str) -> None:
    """An empty destination, whatever was in it before."""
    if kind == "nats":
        async with await nats.connect(address) as client:
            stream = client.jetstream()
            await stream.add_stream(name=STREAM, subjects=[TOPIC])
            await stream.purge_stream(STREAM)
    elif kind == "amqp":
        async with await aio_pika.connect(address) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(TOPIC, durable=True, arguments={"x-queue-type": "quorum"})
            await queue.purge()


class Arrivals:
    """When a consumer first saw each message."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._seen = asyncio.Event()

    def __call__(self, event_id: str, /) -> None:
        self.times.setdefault(event_id, time.monotonic())
        self._seen.set()

    async def since(self, sent: dict[str, float]) -> list[float]:
        """Milliseconds from each of these moments until the message arrived, waited for 30 s at most."""
        async with asyncio.timeout(30):
            while not self.times.keys() >= sent.keys():
                self._seen.clear()
                await self._seen.wait()
        return [(self.times[name] - at) * 1000 for name, at in sent.items()]


async def relay_latency(place: Place, kind: str, address: str, seconds: float) -> list[float]:
    """Milliseconds from the return of COMMIT, in a process of the writer's own, to a consumer of the broker."""
    arrivals = Arrivals()
    dispatcher = load_dispatcher(url(kind, address))
    async with (
        CONSUMERS[kind](address, arrivals),
        Relay(place.dsn, table=TABLE, dispatcher=dispatcher),
    ):
        order = {"dsn": place.dsn, "rate": RATE, "together": 1}
        order |= {"seconds": seconds, "mixed": False, "timeout": 10 * seconds}
        return await arrivals.since(await processes.child("benchmarks.writer_process", order))


async def plain_latency(kind: str, address: str, seconds: float) -> list[float]:
    """Milliseconds from the call of the client to a consumer of the broker, each message on its own."""
    arrivals, sent = Arrivals(), dict[str, float]()
    async with (
        CONSUMERS[kind](address, arrivals),
        plain_clients.connected(kind, address) as client,
    ):

        async def one() -> None:
            message = sample(TOPIC, PAYLOAD)
            ready = client.ready(message)
            sent[str(message.meta.event_id)] = time.monotonic()
            await client.publish([ready], RATE)

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(round(RATE * seconds)):
                await asyncio.sleep(max(began + number / RATE - time.monotonic(), 0.0))
                tasks.create_task(one())
        return await arrivals.since(sent)


@dataclass(frozen=True)
class Bench:
    """Where the arms of a run work."""

    place: Place
    connection: asyncpg.Connection
    size: Size

    async def plain(self, kind: str, address: str, rounds: Rounds, turn: int) -> None:
        await prepare(kind, address)
        result = await processes.child("benchmarks.broker_process", self._order("plain", kind, address))
        rounds.plain.append(self.size.rows / result["seconds"])
        rounds.plain_cpu.append(result["cpu"] / self.size.rows * 1e6)
        rounds.making_cpu.append(result["making"] / self.size.rows * 1e6)
        if turn < self.size.latency_rounds:
            await prepare(kind, address)
            rounds.plain_latency.append(await plain_latency(kind, address, self.size.seconds))

    async def relay(self, kind: str, address: str, rounds: Rounds, turn: int) -> None:
        await prepare(kind, address)
        await self._load()
        result = await processes.child("benchmarks.broker_process", self._order("relay", kind, address))
        rounds.relay.append(self.size.rows / result["seconds"])
        rounds.relay_cpu.append(result["cpu"] / self.size.rows * 1e6)
        if turn < self.size.latency_rounds:
            await prepare(kind, address)
            await common.empty(self.connection)
            rounds.relay_latency.append(await relay_latency(self.place, kind, address, self.size.seconds))

    async def nobody(self, drains: list[float], _: int) -> None:
        await self._load()
        drains.append((await drained(self.place, self.size.rows))["rate"])

    async def _load(self) -> None:
        await common.empty(self.connection)
        await common.load(self.connection, self.size.rows)

    def _order(self, arm: str, kind: str, address: str) -> dict[str, Any]:
        order = {"kind": kind, "address": address, "rows": self.size.rows, "window": WINDOW}
        return {"arm": arm, "dsn": self.place.dsn, **order}


async def measure(place: Place, addresses: dict[str, str], missing: list[Missing], size: Size) -> Section:
    """The figures of every broker in ``addresses``, by kind; every arm once a round, the first ones by turns. A broker
    that fails does not take the others' figures with it."""
    found: dict[str, Rounds] = {kind: Rounds() for kind in addresses}
    drains: list[float] = []
    async with common.database(place) as connection:
        bench = Bench(place, connection, size)
        arms: list[Callable[[int], Awaitable[None]]] = [partial(bench.nobody, drains)]
        for kind, address in addresses.items():
            rounds = found[kind]
            arms += [
                guarded(rounds, partial(arm, kind, address, rounds)) for arm in (bench.plain, bench.relay)
            ]
        for turn in range(size.repeats):
            for arm in rotated(arms, turn):
                await arm(turn)
            shown = ", ".join(f"{kind} {_pace(rounds)}" for kind, rounds in found.items())
            print(f"round {turn + 1}: to nobody {drains[-1]:,.0f}/s, {shown}", file=sys.stderr)
    missing = [*missing, *(_missing(kind, each.failure) for kind, each in found.items() if each.failure)]
    figures = [
        figure("broker_drain_to_nobody", "relay to a dispatcher that does nothing", drains, unit="rows/s")
    ]
    whole = {kind: rounds for kind, rounds in found.items() if rounds.failure is None}
    figures += [line for kind, rounds in whole.items() for line in _figures(kind, rounds, drains)]
    loop = event_loop()[1]
    notes = (
        f"{size.rows:,} rows of 300 bytes, rounds: {size.repeats}, relay and clients on {loop}.",
        "bound: 1 / (1 / client alone + 1 / relay to a dispatcher that does nothing), of the same round.",
        OVERLAP,
        f"Client alone: {WINDOW} messages on their way at any time. {AT_ITS_BEST}",
        f"Latencies at {RATE} messages a second, {size.seconds:g} s a round, rounds: {size.latency_rounds}.",
    )
    return Section("brokers", figures, notes, missing=missing)


def _pace(rounds: Rounds) -> str:
    return rounds.failure or f"{rounds.relay[-1]:,.0f} of {rounds.plain[-1]:,.0f}"


def _missing(kind: str, why: str) -> Missing:
    """A table has the reason in one line."""
    return Missing(f"drain_{kind}_vs_bound", f"{kind}: relay / bound", " ".join(why.split()), at_least=BAR)


def _figures(kind: str, rounds: Rounds, drains: list[float]) -> Iterator[Figure]:
    bounds = [1 / (1 / plain + 1 / drain) for plain, drain in zip(rounds.plain, drains, strict=True)]
    reached = [relay / bound for relay, bound in zip(rounds.relay, bounds, strict=True)]
    yield figure(f"drain_{kind}_vs_bound", f"{kind}: relay / bound", reached, at_least=BAR)
    yield figure(f"{kind}_relay_rate", f"{kind}: relay", rounds.relay, unit="rows/s")
    yield figure(
        f"{kind}_plain_rate", f"{kind}: client alone, {WINDOW} on their way", rounds.plain, unit="rows/s"
    )
    yield figure(f"{kind}_relay_cpu_us", f"{kind}: relay, processor time a row", rounds.relay_cpu, unit="µs")
    yield figure(
        f"{kind}_plain_cpu_us", f"{kind}: client alone, processor time a row", rounds.plain_cpu, unit="µs"
    )
    yield figure(
        f"{kind}_making_cpu_us",
        f"{kind}: making headers beforehand, processor time a row",
        rounds.making_cpu,
        unit="µs",
    )
    for share in (0.5, 0.95):
        for name, text, each in (
            ("commit_to_consumer", "commit to consumer", rounds.relay_latency),
            ("client_to_consumer", "client alone to consumer", rounds.plain_latency),
        ):
            yield figure(
                f"{kind}_{name}_p{share * 100:.0f}_ms",
                f"{kind}: {text}, p{share * 100:.0f}",
                [percentile(one, share) for one in each],
                unit="ms",
            )


@contextmanager
def brokers(kinds: list[str]) -> Iterator[tuple[dict[str, str], list[Missing]]]:
    """The addresses of running brokers, with the destination made; and those that could not be started."""
    services = Services()
    try:
        _ = services.run  # made before the threads ask for it
        with ThreadPoolExecutor() as pool:  # their starts are mostly waiting
            started = dict(zip(kinds, pool.map(partial(_started, services), kinds), strict=True))
        running = {kind: address for kind, address in started.items() if isinstance(address, str)}
        yield running, [each for each in started.values() if isinstance(each, Missing)]
    finally:
        services.close()


def _started(services: Services, kind: str) -> str | Missing:
    try:
        server = services.shared(SERVERS[kind])
    except (NotThere, StartFailed) as reason:
        return _missing(kind, str(reason))
    if isinstance(server, KafkaServer):
        server.create_topic(TOPIC)
    address: str = server.address
    return address


def bars(_: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    return frozenset(f"drain_{kind}_vs_bound" for kind in environment.brokers())


def run(place: Place, mode: Mode) -> Section:
    with brokers(environment.brokers()) as (addresses, missing):
        return common.run(measure(place, addresses, missing, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "brokers"))

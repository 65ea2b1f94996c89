"""How fast a relay empties a backlog into each broker, and how soon a committed message is with a consumer.

    python -m benchmarks.brokers [--dsn DSN] [--quick | --smoke] [--json FILE]

Each figure stands beside the broker's own client, publishing the same bytes in windows of the relay's size and awaiting
every acknowledgement. A relay does that and drains a table besides, so the rate it is held against is
``1 / (1 / plain + 1 / drain)``, with the drain of the same rows into a dispatcher that does nothing. Brokers are
private ones with their default settings, or those of the environment (``OUTBOX_TEST_KAFKA_URL`` and so on);
``OUTBOX_BENCHMARK_BROKERS=kafka,nats`` leaves some out.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aio_pika
import asyncpg
import nats

from benchmarks import common, plain_clients, processes
from benchmarks.broker_process import PAYLOAD, url
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Mode, Place
from benchmarks.figures import Figure, Section, figure, percentile
from benchmarks.plain_clients import STREAM, TOPIC
from benchmarks.processes import drained
from outbox_core.dispatcher import load_dispatcher
from outbox_core.relay import Relay
from outbox_core.testing.contracts.samples import sample
from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.session import Services

SERVERS: dict[str, Any] = {"kafka": KafkaServer, "nats": NatsServer, "amqp": RabbitMQServer}
WINDOW = 500
"""Messages of a window: what a relay with its defaults hands to a dispatcher while a backlog lasts."""
BAR = 0.8
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
    Mode.QUICK: Size(6_000, 2, 2.0, 1),
    Mode.FULL: Size(60_000, 5, 15.0, 5),
}


@dataclass
class Rounds:
    """What each round gave for one broker: rows a second, processor time a row in µs, and milliseconds of latency."""

    relay: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    relay_cpu: list[float] = field(default_factory=list)
    plain_cpu: list[float] = field(default_factory=list)
    relay_latency: list[list[float]] = field(default_factory=list)
    plain_latency: list[list[float]] = field(default_factory=list)


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
        plain_clients.CONSUMERS[kind](address, arrivals),
        Relay(place.dsn, table=TABLE, dispatcher=dispatcher),
    ):
        order = {"dsn": place.dsn, "rate": RATE, "seconds": seconds, "mixed": False, "timeout": 10 * seconds}
        return await arrivals.since(await processes.child("benchmarks.writer_process", order))


async def plain_latency(kind: str, address: str, seconds: float) -> list[float]:
    """Milliseconds from the call of the client to a consumer of the broker, each message on its own."""
    arrivals, sent = Arrivals(), dict[str, float]()
    async with (
        plain_clients.CONSUMERS[kind](address, arrivals),
        plain_clients.PUBLISHERS[kind](address) as client,
    ):

        async def one() -> None:
            message = plain_clients.ready(sample(TOPIC, PAYLOAD))
            sent[message[0]] = time.monotonic()
            await client.publish([message])

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(round(RATE * seconds)):
                await asyncio.sleep(max(began + number / RATE - time.monotonic(), 0.0))
                tasks.create_task(one())
        return await arrivals.since(sent)


async def one_round(
    place: Place,
    connection: asyncpg.Connection,
    kind: str,
    address: str,
    size: Size,
    rounds: Rounds,
    turn: int,
) -> None:
    """The client alone and the relay, in one order and then in the other."""

    order = {"kind": kind, "address": address, "rows": size.rows, "dsn": place.dsn, "window": WINDOW}

    async def plain() -> None:
        await prepare(kind, address)
        result = await processes.child("benchmarks.broker_process", {"arm": "plain", **order})
        rounds.plain.append(size.rows / result["seconds"])
        rounds.plain_cpu.append(result["cpu"] / size.rows * 1e6)
        if turn < size.latency_rounds:
            await prepare(kind, address)
            rounds.plain_latency.append(await plain_latency(kind, address, size.seconds))

    async def relay() -> None:
        await prepare(kind, address)
        await common.empty(connection)
        await common.load(connection, size.rows)
        result = await processes.child("benchmarks.broker_process", {"arm": "relay", **order})
        rounds.relay.append(size.rows / result["seconds"])
        rounds.relay_cpu.append(result["cpu"] / size.rows * 1e6)
        if turn < size.latency_rounds:
            await prepare(kind, address)
            await common.empty(connection)
            rounds.relay_latency.append(await relay_latency(place, kind, address, size.seconds))

    for arm in (plain, relay) if turn % 2 == 0 else (relay, plain):
        await arm()
    print(
        f"round {turn + 1}: {kind}: relay {rounds.relay[-1]:,.0f}/s, client alone {rounds.plain[-1]:,.0f}/s",
        file=sys.stderr,
    )


async def measure(place: Place, addresses: dict[str, str], size: Size) -> Section:
    """The figures of every broker in ``addresses``, by kind; rounds take turns between brokers and arms."""
    connection = await asyncpg.connect(place.dsn)
    found: dict[str, Rounds] = {kind: Rounds() for kind in addresses}
    drains: list[float] = []
    try:
        await common.install(connection)
        for turn in range(size.repeats):
            await common.empty(connection)
            await common.load(connection, size.rows)
            drains.append((await drained(place, size.rows))["rate"])
            print(f"round {turn + 1}: to nobody {drains[-1]:,.0f}/s", file=sys.stderr)
            for kind, address in addresses.items():
                await one_round(place, connection, kind, address, size, found[kind], turn)
        await common.remove(connection)
    finally:
        await connection.close()
    figures = [
        figure("broker_drain_to_nobody", "relay to a dispatcher that does nothing", drains, unit="rows/s")
    ]
    figures += [line for kind, rounds in found.items() for line in _figures(kind, rounds, drains)]
    loop = event_loop()[1]
    notes = (
        f"{size.rows:,} rows of 300 bytes, rounds: {size.repeats}, relay and clients on {loop}.",
        "bound: 1 / (1 / client alone + 1 / relay to a dispatcher that does nothing), of the same round.",
        f"Latencies at {RATE} messages a second, {size.seconds:g} s a round.",
    )
    return Section("brokers", figures, notes)


def _figures(kind: str, rounds: Rounds, drains: list[float]) -> Iterator[Figure]:
    bounds = [1 / (1 / plain + 1 / drain) for plain, drain in zip(rounds.plain, drains, strict=True)]
    reached = [relay / bound for relay, bound in zip(rounds.relay, bounds, strict=True)]
    yield figure(f"drain_{kind}_vs_bound", f"{kind}: relay / bound", reached, at_least=BAR)
    yield figure(f"{kind}_relay_rate", f"{kind}: relay", rounds.relay, unit="rows/s")
    yield figure(
        f"{kind}_plain_rate", f"{kind}: client alone, windows of {WINDOW}", rounds.plain, unit="rows/s"
    )
    yield figure(f"{kind}_relay_cpu_us", f"{kind}: relay, processor time a row", rounds.relay_cpu, unit="µs")
    yield figure(
        f"{kind}_plain_cpu_us", f"{kind}: client alone, processor time a row", rounds.plain_cpu, unit="µs"
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
def brokers(kinds: list[str]) -> Iterator[dict[str, str]]:
    """The addresses of running brokers, with the destination made."""
    services = Services()
    try:
        _ = services.run  # made before the threads ask for it
        with ThreadPoolExecutor() as pool:  # their starts are mostly waiting
            addresses = dict(zip(kinds, pool.map(partial(_started, services), kinds), strict=True))
        yield addresses
    finally:
        services.close()


def _started(services: Services, kind: str) -> str:
    server = services.shared(SERVERS[kind])
    if isinstance(server, KafkaServer):
        server.create_topic(TOPIC)
    address: str = server.address
    return address


def run(place: Place, mode: Mode) -> Section:
    kinds = os.environ.get("OUTBOX_BENCHMARK_BROKERS", ",".join(SERVERS)).split(",")
    with brokers(kinds) as addresses:
        return common.run(measure(place, addresses, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run))

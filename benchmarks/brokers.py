"""How fast a relay empties a backlog into each broker, and how soon a committed message is with a consumer.

    python -m benchmarks.brokers [--dsn DSN] [--quick] [--json FILE] [--only kafka,nats,amqp]

Each figure stands beside the broker's own client, publishing the same bytes in windows of the relay's size and awaiting
every acknowledgement. A relay does that and drains a table besides, so the rate it is held against is
``1 / (1 / plain + 1 / drain)``, with the drain of the same rows into a dispatcher that does nothing. Brokers are
private ones with their default settings, or those of the environment (``OUTBOX_TEST_KAFKA_URL`` and so on).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aio_pika
import asyncpg
import nats

from benchmarks import common, plain_clients
from benchmarks.broker_process import PAYLOAD, url
from benchmarks.common import TABLE, Figure, Place, figure, percentile
from benchmarks.drain import drained
from benchmarks.plain_clients import STREAM, TOPIC
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


QUICK, FULL = Size(15_000, 3, 4.0), Size(60_000, 5, 15.0)


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


async def process(**order: Any) -> dict[str, Any]:
    """What a process of its own measured."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.broker_process", json.dumps(order), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"the process of {order['arm']} to {order['kind']} failed with {child.returncode}")
    result: dict[str, Any] = json.loads(output)
    return result


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
        order = {"dsn": place.dsn, "rate": RATE, "seconds": seconds, "mixed": False}
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.writer_process", json.dumps(order),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(writer.communicate(), 10 * seconds + 60)
        if writer.returncode != 0:
            raise RuntimeError(f"the writer process failed with {writer.returncode}")
        return await arrivals.since(json.loads(output))


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

    async def plain() -> None:
        await prepare(kind, address)
        result = await process(arm="plain", kind=kind, address=address, rows=size.rows, window=WINDOW)
        rounds.plain.append(size.rows / result["seconds"])
        rounds.plain_cpu.append(result["cpu"] / size.rows * 1e6)
        await prepare(kind, address)
        rounds.plain_latency.append(await plain_latency(kind, address, size.seconds))

    async def relay() -> None:
        await prepare(kind, address)
        await common.empty(connection)
        await common.load(connection, size.rows)
        result = await process(arm="relay", kind=kind, address=address, rows=size.rows, dsn=place.dsn)
        rounds.relay.append(size.rows / result["seconds"])
        rounds.relay_cpu.append(result["cpu"] / size.rows * 1e6)
        await prepare(kind, address)
        await common.empty(connection)
        rounds.relay_latency.append(await relay_latency(place, kind, address, size.seconds))

    for arm in (plain, relay) if turn % 2 == 0 else (relay, plain):
        await arm()
    print(
        f"round {turn + 1}: {kind}: relay {rounds.relay[-1]:,.0f}/s, client alone {rounds.plain[-1]:,.0f}/s",
        file=sys.stderr,
    )


async def measure(place: Place, addresses: dict[str, str], size: Size) -> list[Figure]:
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
    return [*figures, *(line for kind, rounds in found.items() for line in _figures(kind, rounds, drains))]


def _figures(kind: str, rounds: Rounds, drains: list[float]) -> Iterator[Figure]:
    bounds = [1 / (1 / plain + 1 / drain) for plain, drain in zip(rounds.plain, drains, strict=True)]
    reached = [relay / bound for relay, bound in zip(rounds.relay, bounds, strict=True)]
    yield figure(f"{kind}_vs_bound", f"{kind}: relay / bound", reached, at_least=BAR)
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
        addresses: dict[str, str] = {}
        for kind in kinds:
            server = services.shared(SERVERS[kind])
            if isinstance(server, KafkaServer):
                server.create_topic(TOPIC)
            addresses[kind] = server.address
        yield addresses
    finally:
        services.close()


def collect(dsn: str | None, *, quick: bool, kinds: list[str] | None = None) -> list[Figure]:
    """Start what is needed, measure, and give back the figures."""
    factory, _ = common.event_loop()
    with (
        common.place(dsn) as place,
        brokers(kinds or list(SERVERS)) as addresses,
        asyncio.Runner(loop_factory=factory) as runner,
    ):
        return runner.run(measure(place, addresses, QUICK if quick else FULL))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dsn", help="a PostgreSQL database; a server is started without it")
    parser.add_argument("--quick", action="store_true", help="a few minutes, rougher figures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--only", default=",".join(SERVERS), help="brokers, with commas between them")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    size = QUICK if arguments.quick else FULL
    _, loop = common.event_loop()
    figures = collect(arguments.dsn, quick=arguments.quick, kinds=arguments.only.split(","))
    notes = (
        f"{size.rows:,} rows of 300 bytes, {size.repeats} rounds by turns, relay and clients on {loop}.",
        "bound: 1 / (1 / client alone + 1 / relay to a dispatcher that does nothing), of the same round.",
        f"Latencies at {RATE} messages a second, {size.seconds:g} s a round.",
    )
    print(common.report("brokers", figures, notes))
    common.save(arguments.json, figures, loop=loop, rows=size.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

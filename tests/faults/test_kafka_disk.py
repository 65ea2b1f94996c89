"""Kafka's disk is full and it shuts itself down: an outage, which no message pays for and after which all arrive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from outbox_core.observer import BreakerClosed, BreakerOpened, Failed
from outbox_kafka import KafkaDispatcher, from_record
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.relay.bench import TOPIC, prepared
from tests.kit.waiting import until
from tests.services.kafka import KafkaServer
from tests.services.postgres import Database
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.timeout(120)]
MESSAGES, CHARACTERS = 30, 20_000
"""Together more than fits into the last pages of the files that are there, which a full disk leaves."""


@pytest.fixture
def kafka(services: Services, small_disk: Path) -> Iterator[KafkaServer]:
    """A broker whose only folder of logs is on the small disk. Its own log is elsewhere."""
    with (
        skipped_or_failed_when_missing(),
        services.private(KafkaServer, extra_config=f"log.dirs={small_disk / 'logs'}\n") as server,
    ):
        server.create_topic(TOPIC)
        yield server


async def test_a_full_disk_is_an_outage_that_ends(
    kafka: KafkaServer, small_disk: Path, database: Database
) -> None:
    dispatcher = KafkaDispatcher(
        f"kafka://{kafka.address}", timeout=1.5, connect_timeout=1.5, close_timeout=1
    )
    async with prepared(database) as bench:

        async def put_off() -> bool:
            rows = [row for row in await bench.rows() if row["state"] == "pending"]
            return len(rows) == MESSAGES and all(row["last_error"] and not row["attempts"] for row in rows)

        async with bench.relay(dispatcher, dispatch_timeout=2.0, lock_ttl=10.0):
            sent = await bench.enqueue("first")
            assert await bench.settled() == {"published": 1}

            filler = _fill(small_disk)
            sent += await bench.enqueue(*("x" * CHARACTERS for _ in range(MESSAGES)))
            await until(lambda: not kafka.processes)
            assert "No space left on device" in kafka.log.read_text()
            await until(put_off)
            assert bench.heard.of(BreakerOpened)

            filler.unlink()
            sent += await bench.enqueue("last")
            await asyncio.to_thread(kafka.restart)
            assert await bench.settled() == {"published": len(sent)}
        assert bench.heard.of(BreakerClosed)
        assert not [event for event in bench.heard.of(Failed) if event.charged]
        assert {row["attempts"] for row in await bench.rows()} == {1}
        assert await _arrived(kafka) == set(sent)


def _fill(disk: Path) -> Path:
    """A file that takes up everything that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


async def _arrived(kafka: KafkaServer) -> set[UUID]:
    """The ids of everything that is in the topic."""
    partition = TopicPartition(TOPIC, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        found: set[UUID] = set()
        while await consumer.position(partition) < end:
            records = await consumer.getmany(partition, timeout_ms=1000)
            found |= {from_record(record).meta.event_id for record in records.get(partition, ())}
        return found
    finally:
        await consumer.stop()

"""JetStream has no storage left and answers probes all the same: an outage that no message pays for, and that ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from nats.aio.client import Client

from outbox_core.observer import BreakerClosed, BreakerOpened, Failed
from outbox_nats import NatsDispatcher
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.relay.bench import TOPIC, prepared
from tests.kit.waiting import until
from tests.services.nats import NatsServer
from tests.services.postgres import Database
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.nats, pytest.mark.timeout(120)]
MAX_ATTEMPTS = 3
TRIES = 3 * 3 * MAX_ATTEMPTS
"""More than there would be if each of three messages were suspected after three of them, and then paid."""


@pytest.fixture
def nats(services: Services, tmp_path: Path) -> Iterator[NatsServer]:
    limited = f"jetstream {{ store_dir: {json.dumps(str(tmp_path))}, max_file_store: 1MB }}"
    with skipped_or_failed_when_missing(), services.private(NatsServer, extra_config=limited) as server:
        yield server


@pytest_asyncio.fixture
async def client(nats: NatsServer) -> AsyncIterator[Client]:
    client = Client()
    await client.connect(nats.address)
    await client.jetstream().add_stream(name="messages", subjects=[TOPIC])
    yield client
    await client.close()


async def test_no_storage_is_an_outage_that_ends(
    nats: NatsServer, client: Client, database: Database
) -> None:
    dispatcher = NatsDispatcher(url=nats.address)
    async with prepared(database) as bench:
        async with bench.relay(
            dispatcher, max_attempts=MAX_ATTEMPTS, backoff_base=0.02, backoff_cap=0.1, poll_interval=0.05
        ):
            await client.jetstream().add_stream(name="others", subjects=["others"])
            await _fill(client)
            sent = await bench.enqueue(*(f"{number}" + "x" * 20_000 for number in range(3)))
            await until(lambda: len(bench.heard.of(Failed)) >= TRIES)
            await dispatcher.probe()  # is answered
            assert "PROVIDER.EXHAUSTED" in bench.heard.of(BreakerOpened)[0].error
            assert await bench.states() == {"pending": len(sent)}

            await client.jetstream().purge_stream("others")
            assert await bench.settled() == {"published": len(sent)}
        assert bench.heard.of(BreakerClosed)
        assert not [event for event in bench.heard.of(Failed) if event.charged]
        assert {row["attempts"] for row in await bench.rows()} == {1}
    assert (await client.jetstream().stream_info("messages")).state.messages == len(sent)


async def _fill(client: Client) -> None:
    """Other messages take up everything that there is: first large ones, then small ones."""
    for size in (100_000, 1_000):
        while b"error" not in (await client.request("others", b"x" * size, timeout=5)).data:
            pass

"""The dispatchers of the core, the doubles and the example of an adapter keep the dispatchers' contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from outbox_core.dispatcher import BatchDispatcher, Dispatcher, FunctionDispatcher
from outbox_core.dispatchers.event_bus import EventBus
from outbox_core.dispatchers.fan_out import FanOut
from outbox_core.dispatchers.router import Router
from outbox_core.errors import PermanentError, ProviderError
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.dispatcher import Broker, Capabilities, DispatcherContract
from outbox_core.testing.recording import RecordingBatchDispatcher, RecordingDispatcher
from tests.contract.line_server import LineServer
from tests.docs import markdown

pytestmark = pytest.mark.asyncio

MAX_BYTES = 1_000_000
EVERYTHING = Capabilities(max_bytes=MAX_BYTES, takes_credentials=False)
NO_OUTAGES = Capabilities(
    takes_credentials=False, freezes=False, restarts=False, refuses_unknown_destinations=True
)


def limited(recording: RecordingDispatcher) -> RecordingDispatcher:
    """Make it refuse the messages that a broker would refuse."""
    recording.fail(ProviderError("no such destination"), topic=Broker.unknown_topic)
    recording.fail(PermanentError("too large"), when=lambda message: len(message.payload) > MAX_BYTES)
    return recording


class RecordingBroker(Broker):
    """In memory the dispatcher is the broker."""

    topic = "contract.core.v1"
    recovery = 5.0

    def __init__(self, recording: RecordingDispatcher) -> None:
        self.recordings = [limited(recording)]

    def make(self) -> Dispatcher:
        return self.recordings[0]

    async def stored(self) -> Sequence[DispatchedMessage]:
        return self.recordings[0].acknowledged

    async def freeze(self) -> None:
        self.recordings[-1].freeze()

    async def thaw(self) -> None:
        self.recordings[-1].thaw()

    async def kill(self) -> None:
        self.recordings[-1].go_down()

    async def restart(self) -> None:
        """Come back once a message has met the outage, or after a second without any."""
        received = len(self.recordings[-1].received)
        for _ in range(100):
            if len(self.recordings[-1].received) > received:
                break
            await anyio.sleep(0.01)
        self.recordings[-1].come_up()


class RoutedBroker(RecordingBroker):
    def make(self) -> Dispatcher:
        return Router({"contract.**": self.recordings[0]})


class FannedBroker(RecordingBroker):
    """Two targets, of which the second has the outages; a message counts as stored when both have it."""

    def __init__(self, first: RecordingDispatcher, second: RecordingDispatcher) -> None:
        super().__init__(first)
        self.recordings.append(limited(second))

    def make(self) -> Dispatcher:
        return FanOut(self.recordings)

    async def stored(self) -> Sequence[DispatchedMessage]:
        first, second = (recording.acknowledged for recording in self.recordings)
        there = {message.meta.event_id for message in first}
        return [message for message in second if message.meta.event_id in there]


class BusBroker(Broker):
    topic = "contract.core.v1"

    def __init__(self) -> None:
        self.bus = EventBus()
        self.received: list[DispatchedMessage] = []
        self.bus.subscribe("contract.core.*", self.keep)

    async def keep(self, message: DispatchedMessage) -> None:
        self.received.append(message)

    def make(self) -> Dispatcher:
        return self.bus

    async def stored(self) -> Sequence[DispatchedMessage]:
        return self.received


class FunctionBroker(BusBroker):
    def make(self) -> Dispatcher:
        return FunctionDispatcher(self.keep)


class TestRecordingDispatcher(DispatcherContract):
    capabilities = EVERYTHING

    @pytest.fixture
    def broker(self) -> Broker:
        return RecordingBroker(RecordingDispatcher())


class TestRecordingBatchDispatcher(DispatcherContract):
    capabilities = EVERYTHING

    @pytest.fixture
    def broker(self) -> Broker:
        return RecordingBroker(RecordingBatchDispatcher())


class TestRouter(DispatcherContract):
    capabilities = EVERYTHING

    @pytest.fixture
    def broker(self) -> Broker:
        return RoutedBroker(RecordingDispatcher())


class TestFanOut(DispatcherContract):
    capabilities = EVERYTHING

    @pytest.fixture
    def broker(self) -> Broker:
        return FannedBroker(RecordingDispatcher(), RecordingBatchDispatcher())


class TestFanOutOfWindows(DispatcherContract):
    capabilities = EVERYTHING

    @pytest.fixture
    def broker(self) -> Broker:
        broker = FannedBroker(RecordingBatchDispatcher(), RecordingBatchDispatcher())
        assert isinstance(broker.make(), BatchDispatcher)
        return broker


class TestEventBus(DispatcherContract):
    capabilities = NO_OUTAGES

    @pytest.fixture
    def broker(self) -> Broker:
        return BusBroker()


class TestFunction(DispatcherContract):
    capabilities = Capabilities(
        refuses_unknown_destinations=False, takes_credentials=False, freezes=False, restarts=False
    )

    @pytest.fixture
    def broker(self) -> Broker:
        return FunctionBroker()


README = markdown.REPOSITORY / "outbox_adapters" / "README.md"
BLOCKS = [
    block for block in markdown.blocks(README.read_text(encoding="utf-8")) if block.language == "python"
]


def run_blocks(path: Path) -> dict[str, Any]:
    """Run the blocks that lead to the example's own test; the page's other examples are run with the documents."""
    names: dict[str, Any] = {"__name__": __name__}
    for block in BLOCKS:
        if "TestLineDispatcher" in names:
            break
        code = compile("\n" * (block.line - 1) + block.text, str(path), "exec", dont_inherit=True)
        eval(code, names)  # noqa: S307 - the project's own document
    return names


NAMES = run_blocks(README)
TestTheExampleOfAnAdapter = NAMES["TestLineDispatcher"]


@pytest_asyncio.fixture
async def line_server() -> AsyncIterator[LineServer]:
    server = LineServer()
    await server.start()
    yield server
    await server.thaw()
    await server.kill()


async def test_the_example_is_as_short_as_the_page_says() -> None:
    example = next(block for block in BLOCKS if "class LineDispatcher" in block.text)
    assert len([line for line in example.text.splitlines() if line.strip()]) <= 30

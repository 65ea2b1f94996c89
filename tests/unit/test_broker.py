"""Links, windows and dispatchers of brokers, with a scripted client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from outbox_core.adapter.broker import BrokerDispatcher
from outbox_core.adapter.link import Blocked, Lost
from outbox_core.adapter.pipeline import PENDING, Confirmations, Undecided, publish_each
from outbox_core.dispatcher import Outcome
from outbox_core.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DispatchTimeout,
    PermanentError,
    ProviderError,
)
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.samples import sample, samples
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


async def for_ever() -> None:
    await asyncio.Event().wait()


class Client:
    def __init__(self, lost: Lost) -> None:
        self.lost = lost
        self.usable = True
        self.ended: list[str] = []


class Connector:
    """Keeps its clients; a test can replace how it connects and closes."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.connecting: Callable[[], Awaitable[None]] = self.at_once
        self.closing: Callable[[], Awaitable[None]] = self.at_once

    async def at_once(self) -> None: ...

    async def connect(self, lost: Lost, /) -> Client:
        await self.connecting()
        self.clients.append(Client(lost))
        return self.clients[-1]

    def usable(self, client: Client, /) -> bool:
        return client.usable

    async def close(self, client: Client, /) -> None:
        client.ended.append("close")
        await self.closing()

    def abort(self, client: Client, /) -> None:
        client.ended.append("abort")


class Dispatcher(BrokerDispatcher[Client]):
    def __init__(self, connector: Connector, connect_timeout: float = 5, close_timeout: float = 0.2) -> None:
        super().__init__(
            "test", connector, timeout=5, connect_timeout=connect_timeout, close_timeout=close_timeout
        )
        self.on_publish: Callable[[Client, DispatchedMessage], Awaitable[None]] = self.accept
        self.on_ping: Callable[[], Awaitable[None]] = connector.at_once

    async def accept(self, client: Client, message: DispatchedMessage) -> None: ...

    async def publish_window(
        self, client: Client, messages: Sequence[DispatchedMessage], outcomes: list[Outcome], /
    ) -> None:
        await publish_each(lambda message: self.on_publish(client, message), messages, outcomes)

    async def ping(self, client: Client, /) -> None:
        await self.on_ping()


@pytest.fixture
def connector() -> Connector:
    return Connector()


def deadline(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_pending_messages_time_out_at_the_deadline_and_the_client_is_replaced(
    connector: Connector,
) -> None:
    async def publish(client: Client, message: DispatchedMessage) -> None:
        if message.meta.sequence == 2:
            await for_ever()

    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_publish = publish
        began = time.monotonic()
        outcomes = await dispatcher.dispatch_many(samples("a", 3), deadline=deadline(0.3))
        assert time.monotonic() - began < 0.3
        assert (outcomes[0], type(outcomes[1]), outcomes[2]) == (None, DispatchTimeout, None)
        dispatcher.on_publish = dispatcher.accept
        await dispatcher.dispatch(sample("a"))

    assert [client.ended for client in connector.clients] == [["close", "abort"]] * 2


async def test_a_client_that_ignores_its_cancellation_does_not_delay_the_window(connector: Connector) -> None:
    released = asyncio.Event()

    async def publish(client: Client, message: DispatchedMessage) -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_publish = publish
        began = time.monotonic()
        (outcome,) = await dispatcher.dispatch_many([sample("a")], deadline=deadline(0.2))
        assert time.monotonic() - began < 0.6
        assert isinstance(outcome, DispatchTimeout)
        released.set()
        await asyncio.sleep(0)


async def test_a_lost_connection_ends_the_windows_on_it(connector: Connector) -> None:
    hanging = 0

    async def count_and_hang(client: object, message: object) -> None:
        nonlocal hanging
        hanging += 1
        await for_ever()

    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_publish = count_and_hang
        windows = [
            asyncio.create_task(dispatcher.dispatch_many(samples("a", 2), deadline=deadline(10)))
            for _ in range(2)
        ]
        await until(lambda: hanging == 4)
        lost = BrokerUnavailable("gone")
        connector.clients[0].lost(lost)
        assert [await window for window in windows] == [[lost, lost]] * 2
        dispatcher.on_publish = dispatcher.accept
        await dispatcher.dispatch(sample("a"))

    assert len(connector.clients) == 2


async def test_a_retired_client_is_closed_after_its_last_user(connector: Connector) -> None:
    go_on = asyncio.Event()

    async def publish(client: Client, message: DispatchedMessage) -> None:
        await (go_on.wait() if message.meta.topic == "slow" else for_ever())

    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_publish = publish
        slow = asyncio.create_task(dispatcher.dispatch_many([sample("slow")], deadline=deadline(10)))
        await dispatcher.dispatch_many([sample("stuck")], deadline=deadline(0.1))
        assert connector.clients[0].ended == []
        go_on.set()
        assert await slow == [None]
        await until(lambda: connector.clients[0].ended == ["close", "abort"])


async def test_messages_that_failed_together_are_retried_alone(connector: Connector) -> None:
    alone: list[int] = []

    async def publish(client: Client, message: DispatchedMessage) -> None:
        if client is connector.clients[0]:
            raise Undecided(PermanentError("too large"))
        alone.append(message.meta.sequence)
        if message.meta.sequence == 2:
            raise Undecided(PermanentError("too large"))

    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_publish = publish
        outcomes = await dispatcher.dispatch_many(samples("a", 3), deadline=deadline(5))

    assert alone == [1, 2, 3]
    assert (outcomes[0], type(outcomes[1]), outcomes[2]) == (None, PermanentError, None)
    assert len(connector.clients) == 3


async def test_a_message_without_time_for_a_retry_alone_does_not_fail_permanently(
    connector: Connector,
) -> None:
    async def publish(client: Client, message: DispatchedMessage) -> None:
        if client is connector.clients[0]:
            raise Undecided(PermanentError("too large"))
        await for_ever()

    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_publish = publish
        outcomes = await dispatcher.dispatch_many(samples("a", 3), deadline=deadline(0.2))

    assert [type(outcome) for outcome in outcomes] == [DispatchTimeout, ProviderError, ProviderError]


async def test_one_connection_is_made_for_all_waiting_windows(connector: Connector) -> None:
    async def fail() -> None:
        raise BrokerUnavailable("unavailable")

    connector.connecting = fail
    async with Dispatcher(connector) as dispatcher:
        connector.connecting = connector.at_once
        await asyncio.gather(*(dispatcher.dispatch(sample("a")) for _ in range(5)))

    assert len(connector.clients) == 1


async def test_connecting_is_bounded(connector: Connector) -> None:
    connector.connecting = for_ever
    began = time.monotonic()
    async with Dispatcher(connector, connect_timeout=0.2) as dispatcher:
        (outcome,) = await dispatcher.dispatch_many([sample("a")], deadline=deadline(0.1))
        assert type(outcome) is BrokerUnavailable
        with pytest.raises(BrokerUnavailable, match=r"within 0\.2 s"):
            await dispatcher.probe()

    assert time.monotonic() - began < 1.5


async def test_a_refused_login_fails_the_opening(connector: Connector) -> None:
    async def refuse() -> None:
        raise BrokerRefused("no")

    connector.connecting = refuse
    with pytest.raises(BrokerRefused):
        await Dispatcher(connector).__aenter__()


async def test_closing_is_bounded_and_forced(connector: Connector) -> None:
    connector.closing = for_ever
    dispatcher = Dispatcher(connector)
    await dispatcher.__aenter__()
    began = time.monotonic()
    await dispatcher.__aexit__(None, None, None)

    assert 0.15 < time.monotonic() - began < 1
    assert connector.clients[0].ended == ["close", "abort"]


async def test_a_cancelled_opening_leaves_nothing_open(connector: Connector) -> None:
    connector.connecting = for_ever
    task = asyncio.create_task(Dispatcher(connector).__aenter__())
    await asyncio.wait([task], timeout=0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_unanswered_probe_replaces_the_client(connector: Connector) -> None:
    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_ping = for_ever
        task = asyncio.create_task(dispatcher.probe())
        await asyncio.wait([task], timeout=0.05)
        task.cancel()
        await asyncio.wait([task])
        dispatcher.on_ping = connector.at_once
        await dispatcher.probe()

    assert len(connector.clients) == 2


async def test_a_blocked_broker_does_not_retire_the_client(connector: Connector) -> None:
    async def blocked(client: Client, message: DispatchedMessage) -> None:
        raise Blocked("alarm")

    async with Dispatcher(connector) as dispatcher:
        dispatcher.on_publish = blocked
        (outcome,) = await dispatcher.dispatch_many([sample("a")], deadline=deadline(1))
        assert isinstance(outcome, BrokerUnavailable)
        dispatcher.on_publish = dispatcher.accept
        await dispatcher.dispatch(sample("a"))
        connector.clients[0].usable = False
        await dispatcher.dispatch(sample("a"))

    assert len(connector.clients) == 2


async def test_the_last_of_several_users_closes_the_dispatcher(connector: Connector) -> None:
    dispatcher = Dispatcher(connector)
    async with dispatcher:
        async with dispatcher:
            await dispatcher.dispatch(sample("a"))
        await dispatcher.dispatch(sample("a"))
        assert [client.ended for client in connector.clients] == [[]]

    assert [client.ended for client in connector.clients] == [["close", "abort"]]
    with pytest.raises(BrokerUnavailable, match="is not open"):
        await dispatcher.dispatch(sample("a"))


async def test_a_refused_opening_does_not_close_the_dispatcher_for_other_users(connector: Connector) -> None:
    async def refuse() -> None:
        raise BrokerRefused("no")

    async with Dispatcher(connector) as dispatcher:
        connector.clients[0].usable = False
        connector.connecting = refuse
        with pytest.raises(BrokerRefused):
            await dispatcher.__aenter__()
        connector.connecting = connector.at_once
        await dispatcher.dispatch(sample("a"))


async def test_the_error_of_a_window_is_the_outcome_of_pending_messages(connector: Connector) -> None:
    error = ProviderError("half of it")

    class Halfway(Dispatcher):
        async def publish_window(
            self, client: Client, messages: Sequence[DispatchedMessage], outcomes: list[Outcome], /
        ) -> None:
            outcomes[0] = None
            raise error

    async with Halfway(connector) as dispatcher:
        assert await dispatcher.dispatch_many(samples("a", 2), deadline=deadline(1)) == [None, error]


async def test_missing_confirmations_are_cancelled_and_the_others_count() -> None:
    loop = asyncio.get_running_loop()
    come, failed, late = (loop.create_future() for _ in range(3))
    come.set_result("stored")
    failed.set_exception(ProviderError("nack"))
    outcomes: list[Outcome] = [PENDING, PENDING, PENDING]

    async def wait() -> None:
        with Confirmations[str](outcomes, lambda _, future: future.exception()) as sent:
            for index, future in enumerate((come, failed, late)):
                sent[index] = future
            await sent.wait()

    task = asyncio.create_task(wait())
    await asyncio.wait([task], timeout=0.05)
    task.cancel()
    await asyncio.wait([task])

    assert outcomes[0] is None
    assert isinstance(outcomes[1], ProviderError)
    assert outcomes[2] is PENDING
    assert late.cancelled()

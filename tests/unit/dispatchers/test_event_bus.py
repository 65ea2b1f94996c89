"""The event bus: who gets a message, with which arguments, and what becomes of failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from outbox_core.dispatcher import BatchDispatcher, Dispatcher, as_dispatcher
from outbox_core.dispatchers.event_bus import EventBus
from outbox_core.errors import (
    AllPermanent,
    HandlerCancelled,
    HandlerTimeout,
    InvalidHandlerReturn,
    NoSubscribers,
    PermanentError,
)
from outbox_core.message import DispatchedMessage
from outbox_core.redaction import summary_of
from outbox_core.testing.contracts.samples import sample

pytestmark = pytest.mark.asyncio

TOPIC = "orders.order.placed.v1"


async def nothing(message: DispatchedMessage) -> None: ...


def failing(error: Exception) -> Callable[[DispatchedMessage], Awaitable[None]]:
    async def fail(message: DispatchedMessage) -> None:
        raise error

    return fail


async def test_it_is_a_dispatcher_that_takes_one_message_at_a_time() -> None:
    bus = EventBus()
    assert isinstance(bus, Dispatcher)
    assert not isinstance(bus, BatchDispatcher)
    assert as_dispatcher(bus) is bus


@pytest.mark.parametrize(
    ("pattern", "gets"),
    [
        (TOPIC, True),
        ("orders.*.placed.v1", True),
        ("orders.**", True),
        ("**", True),
        ("orders.*", False),
        ("mail.**", False),
    ],
)
async def test_exact_and_wildcard_subscriptions(pattern: str, gets: bool) -> None:
    bus = EventBus()
    got: list[str] = []
    bus.subscribe("orders.order.placed.v1", nothing)

    @bus.on(pattern)
    async def keep(message: DispatchedMessage) -> None:
        got.append(message.meta.topic)

    await bus.publish(sample(TOPIC))
    assert got == ([TOPIC] if gets else [])


async def test_every_matching_handler_runs_although_another_fails() -> None:
    bus = EventBus()
    ran: list[str] = []
    bus.subscribe(TOPIC, failing(RuntimeError("first")))

    @bus.on("orders.**")
    async def asynchronous(message: DispatchedMessage) -> None:
        ran.append("asynchronous")

    @bus.on("**")
    def synchronous(message: DispatchedMessage) -> None:
        ran.append("synchronous")

    with pytest.raises(RuntimeError, match="first"):
        await bus.dispatch(sample(TOPIC))
    assert sorted(ran) == ["asynchronous", "synchronous"]


async def test_handlers_run_at_the_same_time() -> None:
    bus = EventBus(timeout=5)
    arrived = [anyio.Event(), anyio.Event()]

    def meeting(mine: int) -> Callable[[DispatchedMessage], Awaitable[None]]:
        async def meet(message: DispatchedMessage) -> None:
            arrived[mine].set()
            await arrived[1 - mine].wait()

        return meet

    bus.subscribe(TOPIC, meeting(0))
    bus.subscribe(TOPIC, meeting(1))
    await bus.dispatch(sample(TOPIC))


async def test_a_synchronous_handler_does_not_hold_up_the_loop() -> None:
    bus = EventBus()
    release, threads = threading.Event(), list[threading.Thread]()

    @bus.on(TOPIC)
    def wait(message: DispatchedMessage) -> None:
        threads.append(threading.current_thread())
        assert release.wait(10)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.dispatch, sample(TOPIC))
        await anyio.lowlevel.checkpoint()
        release.set()  # only possible because the loop goes on meanwhile
    assert threads != [threading.main_thread()]


async def test_nobody_listening_is_a_failure_that_is_retried() -> None:
    bus = EventBus()
    subscription = bus.subscribe("mail.**", nothing)
    with pytest.raises(NoSubscribers, match=TOPIC) as raised:
        await bus.dispatch(sample(TOPIC))
    assert not isinstance(raised.value, PermanentError)
    assert raised.value.code == "EVENTBUS.NO_SUBSCRIBERS"
    await bus.dispatch(sample("mail.sent"))
    bus.unsubscribe(subscription)
    bus.unsubscribe(subscription)
    with pytest.raises(NoSubscribers):
        await bus.dispatch(sample("mail.sent"))


async def test_a_subscription_counts_from_the_moment_it_is_made() -> None:
    bus = EventBus()
    with pytest.raises(NoSubscribers):
        await bus.dispatch(sample(TOPIC))
    bus.subscribe(TOPIC, nothing)
    await bus.dispatch(sample(TOPIC))


async def an_int(message: DispatchedMessage) -> Any:
    return 1


def a_bool(message: DispatchedMessage) -> Any:
    return False


def a_coroutine(message: DispatchedMessage) -> Any:
    return nothing(message)


@pytest.mark.parametrize("handler", [an_int, a_bool, a_coroutine, lambda message: nothing(message)])
async def test_a_returned_value_is_a_permanent_failure(handler: Callable[..., Any]) -> None:
    bus = EventBus()
    bus.subscribe(TOPIC, handler)
    with pytest.raises(InvalidHandlerReturn) as raised:
        await bus.dispatch(sample(TOPIC))
    assert isinstance(raised.value, PermanentError)
    assert raised.value.code == "EVENTBUS.INVALID_HANDLER_RETURN"


async def test_several_failures_come_together() -> None:
    bus = EventBus()
    errors = [PermanentError("one"), RuntimeError("two")]
    for error in errors:
        bus.subscribe(TOPIC, failing(error))
    bus.subscribe(TOPIC, nothing)
    with pytest.raises(ExceptionGroup, match="2 of 3 handlers failed") as raised:
        await bus.dispatch(sample(TOPIC))
    assert list(raised.value.exceptions) == errors
    assert not isinstance(raised.value, PermanentError), "the second one may succeed next time"


async def test_several_failures_are_permanent_only_when_each_is() -> None:
    bus = EventBus()
    bus.subscribe(TOPIC, failing(PermanentError("one")))
    bus.subscribe(TOPIC, an_int)
    with pytest.raises(AllPermanent) as raised:
        await bus.dispatch(sample(TOPIC))
    assert isinstance(raised.value, PermanentError)
    assert [type(error) for error in raised.value.exceptions] == [PermanentError, InvalidHandlerReturn]
    summary = summary_of(raised.value, b"", 2048)
    assert summary.startswith(
        "PROVIDER.ALL_PERMANENT 2 of 2 handlers failed: PROVIDER.PERMANENT one; EVENTBUS.INV"
    )


async def test_a_timeout_of_one_handler_fails_it_alone() -> None:
    bus = EventBus(timeout=30)
    done: list[str] = []

    @bus.on(TOPIC, timeout=0.01)
    async def slow(message: DispatchedMessage) -> None:
        await anyio.sleep_forever()

    @bus.on(TOPIC)
    async def quick(message: DispatchedMessage) -> None:
        done.append("quick")

    with pytest.raises(HandlerTimeout, match=r"slow did not end within 0\.01 s") as raised:
        await bus.dispatch(sample(TOPIC))
    assert raised.value.seconds == 0.01
    assert done == ["quick"]


async def test_a_synchronous_handler_is_left_behind_when_its_time_is_up() -> None:
    bus = EventBus(timeout=0.01)
    release = threading.Event()

    @bus.on(TOPIC)
    def slow(message: DispatchedMessage) -> None:
        release.wait(10)

    try:
        with pytest.raises(HandlerTimeout):
            await bus.dispatch(sample(TOPIC))
    finally:
        release.set()


async def test_a_handlers_own_timeout_error_is_its_own() -> None:
    bus = EventBus()
    bus.subscribe(TOPIC, failing(TimeoutError("of the database")))
    with pytest.raises(TimeoutError, match="of the database"):
        await bus.dispatch(sample(TOPIC))


async def test_a_cancellation_from_inside_is_a_failure() -> None:
    bus = EventBus()

    @bus.on(TOPIC)
    async def cancelled(message: DispatchedMessage) -> None:
        raise asyncio.CancelledError

    with pytest.raises(HandlerCancelled, match="cancelled"):
        await bus.dispatch(sample(TOPIC))


async def test_a_cancellation_from_outside_reaches_the_handlers() -> None:
    bus = EventBus()
    ended: list[str] = []

    @bus.on(TOPIC)
    async def endless(message: DispatchedMessage) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("endless")

    with anyio.move_on_after(0.05) as scope:
        await bus.dispatch(sample(TOPIC))
    assert scope.cancelled_caught
    assert ended == ["endless"]

"""Dispatchers that break the rules cost themselves their own messages, never the others', and never the relay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from outbox_core.dispatcher import Outcome
from outbox_core.errors import ConfigError, PermanentError, RetryAfter
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
BAD = b'"bad"'


async def outcome_of_the_bad_one(bench: Bench, dispatcher: Any, **settings: Any) -> tuple[str, str]:
    """Deliver good messages around a bad one; the state and the error of that one."""
    await bench.enqueue("good", "bad", "fine")
    relay = bench.relay(dispatcher, max_attempts=2, **settings)
    async with relay:
        await bench.settled()
        assert relay.state == "running"
    rows = {row["content"]: row for row in await bench.rows()}
    assert rows['"good"']["state"] == rows['"fine"']["state"] == "published"
    return rows['"bad"']["state"], rows['"bad"']["last_error"]


@pytest.mark.parametrize("returned", [True, 0, "sent", ValueError("not raised")])
async def test_returning_something_is_no_acknowledgement(bench: Bench, returned: object) -> None:
    async def dispatch(message: DispatchedMessage) -> Any:
        return returned if message.payload == BAD else None

    state, error = await outcome_of_the_bad_one(bench, dispatch)
    assert state == "dead"
    assert error.startswith("PROVIDER.INVALID_RETURN the dispatcher ")
    assert f"returned a {type(returned).__name__}; it must return None once the destination has" in error


class Windows:
    """Takes windows; what it makes of one is the test's."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        raise AssertionError("windows were promised")

    async def dispatch_many(self, messages: Sequence[DispatchedMessage], /, *, deadline: float) -> Any:
        return self.answer(messages)


@pytest.mark.parametrize("outcome", [True, PermanentError, "sent"])
async def test_an_outcome_that_is_neither_none_nor_an_error(bench: Bench, outcome: object) -> None:
    window = Windows(lambda messages: [outcome if m.payload == BAD else None for m in messages])
    state, error = await outcome_of_the_bad_one(bench, window)
    assert state == "dead"
    returned = f"PROVIDER.INVALID_RETURN dispatch_many of Windows returned a {type(outcome).__name__} as an outcome; "
    assert error.startswith(returned)


@pytest.mark.parametrize("answer", [lambda _: None, lambda m: [None] * (len(m) + 1), lambda _: object()])
async def test_a_window_without_an_outcome_for_each_message_acknowledges_none(
    bench: Bench, answer: Any
) -> None:
    await bench.enqueue(1, 2)
    async with bench.relay(Windows(answer), max_attempts=2):
        assert await bench.settled() == {"dead": 2}
    for row in await bench.rows():
        assert row["last_error"].startswith("PROVIDER.INVALID_RETURN dispatch_many of Windows returned ")


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("error", [Odd("odd"), GeneratorExit(), asyncio.CancelledError("its own")])
async def test_raising_a_base_exception(bench: Bench, error: BaseException) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == BAD:
            raise error

    state, text = await outcome_of_the_bad_one(bench, dispatch)
    assert state == "dead"
    assert text.startswith(f"UNKNOWN.{type(error).__name__.upper()} ")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Homeless(Exception):
    __module__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        Homeless("x"),
        ValueError("half a character \ud800 and a NUL \0"),
        RetryAfter(0.01),  # type: ignore[arg-type]
        ExceptionGroup("two", [ValueError("a"), ExceptionGroup("more", [Unprintable()])]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_that_cannot_be_shown_or_stored_as_they_are(bench: Bench, error: Exception) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == BAD:
            raise error

    state, text = await outcome_of_the_bad_one(bench, dispatch)
    assert state == "dead"
    assert text


async def test_hanging_is_cut_off_at_the_deadline(bench: Bench) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == BAD:
            await asyncio.Event().wait()

    state, error = await outcome_of_the_bad_one(bench, dispatch, dispatch_timeout=0.2)
    assert (state, error) == ("dead", "TX.TIMEOUT not acknowledged within 0.2 s")


@pytest.mark.parametrize("windows", [False, True])
async def test_swallowing_the_deadline_and_returning_is_no_acknowledgement(
    bench: Bench, windows: bool
) -> None:
    """The publish was cut off: that the dispatcher comes back quietly does not make it delivered."""

    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == BAD:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

    class Swallowing(Windows):
        async def dispatch_many(self, messages: Sequence[DispatchedMessage], /, *, deadline: float) -> Any:
            outcomes: list[Outcome] = []
            for message in messages:
                outcomes.append(await dispatch(message))  # type: ignore[func-returns-value]
            return outcomes

    await bench.enqueue("bad")
    async with bench.relay(
        Swallowing(None) if windows else dispatch, dispatch_timeout=0.2, max_attempts=2
    ) as relay:
        assert await bench.settled() == {"dead": 1}
        assert relay.state == "running"
    assert (await bench.row())["last_error"].startswith("TX.TIMEOUT ")


async def test_swallowing_the_stop_and_returning_is_no_acknowledgement(bench: Bench) -> None:
    begun = asyncio.Event()

    async def dispatch(message: DispatchedMessage) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    await bench.enqueue("bad")
    relay = bench.relay(dispatch, dispatch_timeout=5.0, lock_ttl=30.0)
    await relay.start()
    await begun.wait()
    await relay.stop(grace=0.1)
    await relay.wait()
    row = await bench.row()
    assert (row["state"], row["attempts"]) == ("pending", 1)
    assert row["last_error"].startswith("TX.INTERRUPTED ")


async def test_one_that_never_lets_a_cancellation_through_is_left_behind(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Its row is put off, the others flow, it is cancelled once, not again and again, and stopping does not wait for
    it."""
    release = asyncio.Event()
    stuck = cancelled = 0

    async def dispatch(message: DispatchedMessage) -> None:
        nonlocal stuck, cancelled
        if message.payload == BAD and not release.is_set():
            stuck += 1
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    cancelled += 1

    await bench.enqueue("good", "bad")
    relay = bench.relay(dispatch, dispatch_timeout=0.2, concurrency=2, backoff_base=10.0, backoff_cap=10.0)
    await relay.start()
    await until(lambda: "was abandoned with 1 message(s)" in caplog.text)
    await bench.enqueue("later")

    async def others_are_through() -> bool:
        return await bench.states() == {"published": 2, "pending": 1}

    await until(others_are_through)
    assert cancelled == 1
    began = time.monotonic()
    await relay.stop(grace=0.2)
    assert time.monotonic() - began < 1.7
    release.set()
    await relay.wait()
    await until(lambda: not [task for task in asyncio.all_tasks() if "outbox-dispatch" in task.get_name()])
    assert stuck == 1


async def test_one_that_comes_back_after_it_was_left_behind_does_not_answer_for_its_successor(
    bench: Bench,
) -> None:
    release, came_back, second = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls = 0

    async def dispatch(message: DispatchedMessage) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            asyncio.get_running_loop().call_soon(came_back.set)
        elif calls == 2:
            second.set()
            release.set()
            await came_back.wait()  # this one is at work all the while
            raise PermanentError("the second attempt says no")

    await bench.enqueue(1)
    relay = bench.relay(dispatch, dispatch_timeout=0.6)
    await relay.start()
    await second.wait()
    assert await bench.settled() == {"dead": 1}
    assert (await bench.row())["last_error"] == "PROVIDER.PERMANENT the second attempt says no"
    await relay.stop()


@pytest.mark.parametrize(
    ("dispatcher", "shown"),
    [(lambda _: None, "<lambda>"), (object(), "object"), (None, "NoneType"), ("kafka", "str")],
)
async def test_what_is_no_dispatcher_is_refused_at_once(dispatcher: Any, shown: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Relay("postgresql://nowhere/x", table=TABLE, dispatcher=dispatcher)
    assert shown in str(raised.value)
    assert "pass an object with `async def dispatch(message)` or an async function" in str(raised.value)


async def test_a_router_that_cannot_route_one_topic_fails_that_topic_alone(bench: Bench) -> None:
    class Leaf:
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            await ignore(message)

    class Wrong(Leaf):
        def probe(self) -> None:
            pass

    class Circle(Leaf):
        def route(self, topic: str, /) -> Any:
            return router

    class Router(Leaf):
        leaf, wrong, circle = Leaf(), Wrong(), Circle()

        def route(self, topic: str, /) -> Any:
            if topic == "no.such":
                raise LookupError("nothing is mapped to no.such")
            if topic == "no.exit":
                raise GeneratorExit
            if topic == "wrong.probe":
                return self.wrong
            if topic == "in.circles":
                return self.circle
            if topic == "my.own":
                return self
            return "a string" if topic == "not.one" else self.leaf

    await bench.enqueue(1, topic="no.such")
    await bench.enqueue(2, topic="not.one")
    await bench.enqueue(3, topic="wrong.probe")
    await bench.enqueue(4)
    await bench.enqueue(5, topic="in.circles")
    await bench.enqueue(6, topic="my.own")
    await bench.enqueue(7, topic="no.exit")
    router = Router()
    async with bench.relay(router, max_attempts=2):
        assert await bench.settled() == {"dead": 4, "published": 3}
    cure = "one of them has to answer with a dispatcher that is no router, or with itself to take the message"
    assert [row["last_error"] for row in await bench.rows()] == [
        "UNKNOWN.LOOKUPERROR LookupError: nothing is mapped to no.such",
        "CONFIG.INVALID route() returned a str, which is not a dispatcher",
        None,  # a probe is for outages: what is wrong with it costs no message that can be delivered
        None,
        f"CONFIG.INVALID the routers lead in a circle with the topic 'in.circles': Router, Circle, Router; {cure}",
        None,
        "UNKNOWN.GENERATOREXIT GeneratorExit:",
    ]

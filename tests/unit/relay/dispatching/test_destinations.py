"""Destinations by topic: found once for each, and remembered within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outbox_core.dispatcher import Dispatcher
from outbox_core.errors import ConfigError
from outbox_core.meta import DispatchedMessage
from outbox_core.routes import MOST_ROUTERS
from tests.kit.brokers import SilentBroker
from tests.kit.deliveries import destinations
from tests.kit.tuning import constant

MOST_TOPICS: int = constant("most_topics")


class Parity:
    """A router by the last letter."""

    def __init__(self) -> None:
        self.even, self.odd, self.asked = SilentBroker(), SilentBroker(), 0

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        pass

    def route(self, topic: str) -> Dispatcher:
        self.asked += 1
        return self.odd if int(topic[-1]) % 2 else self.even


def test_a_topic_is_routed_once_and_topics_without_end_are_forgotten() -> None:
    router = Parity()
    found = destinations(router)
    assert found.of("a.1") is found.of("a.1")
    assert router.asked == 1
    for number in range(3 * MOST_TOPICS):
        assert found.of(f"orders.{number}").dispatcher is (router.odd if number % 2 else router.even)
    known = found.of("a.1").topics | found.of("a.2").topics
    assert 0 < len(known) <= MOST_TOPICS + 2
    assert found.of("orders.1") is found.of("a.1")


class Passing(SilentBroker):
    """A router that hands everything to one other, and fails the test when it is asked without end."""

    def __init__(self, name: str, to: object = None) -> None:
        self.name, self.to, self.asked = name, to, 0

    def route(self, topic: str) -> Any:
        self.asked += 1
        if self.asked > 1000:
            raise AssertionError("asked without end")
        return self.to


class Endless(SilentBroker):
    """A router that answers with a new one each time."""

    def route(self, topic: str) -> Any:
        return Endless()


def test_a_router_that_answers_with_itself_takes_the_message_itself() -> None:
    router = Passing("own")
    router.to = router
    before = Passing("before", router)
    assert destinations(router).of("a").dispatcher is router
    assert destinations(before).of("a").dispatcher is router


def test_routers_in_a_circle_are_found_out() -> None:
    first, second, third = Passing("first"), Passing("second"), Passing("third")
    first.to, second.to, third.to = second, third, second
    with pytest.raises(ConfigError) as raised:
        destinations(first).of("a.b")
    assert str(raised.value) == (
        "the routers lead in a circle with the topic 'a.b': first, second, third, second; one of them has to answer"
        " with a dispatcher that is no router, or with itself to take the message"
    )


def chain(routers: int) -> Any:
    to: Any = SilentBroker()
    for number in range(routers, 0, -1):
        to = Passing(f"r{number}", to)
    return to


def test_routers_one_behind_the_other_are_bounded() -> None:
    assert isinstance(destinations(chain(MOST_ROUTERS)).of("a").dispatcher, SilentBroker)
    with pytest.raises(ConfigError) as raised:
        destinations(chain(MOST_ROUTERS + 1)).of("a.b")
    assert str(raised.value).startswith(
        "the topic 'a.b' leads through more than 10 routers: r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11; "
    )
    with pytest.raises(ConfigError, match="more than 10 routers: Endless, Endless, "):
        destinations(Endless()).of("a.b")


@pytest.mark.filterwarnings("error")
def test_a_router_that_answers_with_something_to_be_awaited() -> None:
    async def later() -> SilentBroker:
        return SilentBroker()

    with pytest.raises(
        ConfigError, match=r"route\(\) returned a coroutine, which is not a dispatcher; .* plain function"
    ):
        destinations(Passing("late", later())).of("a")


@pytest.mark.asyncio
async def test_why_probes_fail_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    class Unprobeable(SilentBroker):
        why: BaseException | None = OSError("no route to amqp://user:CANARY@host")

        async def probe(self) -> None:
            if self.why is not None:
                raise self.why

    broker = Unprobeable()
    where = destinations(broker).of("a")

    async def said(why: BaseException | None) -> list[str]:
        caplog.clear()
        broker.why = why
        assert [await where.probe(1.0) for _ in range(3)] == [why is None] * 3
        return [record.message for record in caplog.records if record.levelname == "WARNING"]

    refused = OSError("no route to amqp://user:CANARY@host")
    text = "the probe of Unprobeable failed: UNKNOWN.OSERROR OSError: no route to amqp://***@host"
    where.unavailable(0.0, ())
    assert await said(refused) == [text]
    assert await said(refused) == []
    assert len(await said(ValueError("no such user"))) == 1
    assert len(await said(asyncio.CancelledError())) == 1
    assert await said(None) == []
    where.acknowledged(1.0)
    where.unavailable(2.0, ())
    assert await said(refused) == [text], "it is another outage"

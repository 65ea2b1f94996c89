"""The router: which target gets a message, and the life of the targets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

import anyio
import pytest

from outbox_core.dispatcher import BatchDispatcher, Routing
from outbox_core.dispatchers.fan_out import FanOut
from outbox_core.dispatchers.router import Router
from outbox_core.errors import (
    ConfigError,
    InvalidDispatcherReturn,
    InvalidTopicPattern,
    NoRoute,
    PermanentError,
)
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.samples import sample
from outbox_core.testing.recording import RecordingDispatcher
from tests.kit.tuning import tune

pytestmark = pytest.mark.asyncio


class Managed(RecordingDispatcher):
    """Keeps a diary of its life."""

    def __init__(self, name: str, diary: list[str], *, fails: str = "", hangs: bool = False) -> None:
        super().__init__(name=name)
        self.diary, self.fails, self.hangs = diary, fails, hangs

    async def __aenter__(self) -> None:
        if self.fails == "open":
            raise RuntimeError(f"{self.name} does not open")
        self.diary.append(f"open {self.name}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self.hangs:
            await anyio.sleep_forever()
        self.diary.append(f"close {self.name}")
        if self.fails == "close":
            raise RuntimeError(f"{self.name} does not close")


async def test_the_first_match_in_order_wins() -> None:
    first, second, default = (RecordingDispatcher(name=name) for name in ("first", "second", "default"))
    router = Router({"orders.order.*": first, "orders.**": second}, default=default)
    assert isinstance(router, Routing)
    assert router.route("orders.order.placed") is first
    assert router.route("orders.mail.sent.v1") is second
    assert router.route("mail.sent") is default
    message = sample("orders.order.placed")
    await router.dispatch(message)
    assert (first.acknowledged, second.acknowledged) == ([message], [])


async def test_no_match_is_retried_and_says_what_there_is() -> None:
    router = Router({"orders.**": RecordingDispatcher()})
    with pytest.raises(NoRoute, match=r"'mail.sent'; the routes are 'orders\.\*\*'") as raised:
        await router.dispatch(sample("mail.sent"))
    assert not isinstance(raised.value, PermanentError)
    assert raised.value.topic == "mail.sent"


async def test_a_function_is_a_target_and_may_return_nothing() -> None:
    got: list[DispatchedMessage] = []

    async def keep(message: DispatchedMessage) -> None:
        got.append(message)

    async def talk(message: DispatchedMessage) -> str:
        return "ok"

    router = Router({"a.*": keep}, default=talk)  # type: ignore[arg-type]
    await router.dispatch(sample("a.b"))
    assert [message.meta.topic for message in got] == ["a.b"]
    with pytest.raises(InvalidDispatcherReturn, match="talk"):
        await router.dispatch(sample("b.c"))


async def test_each_target_is_opened_and_closed_once() -> None:
    diary: list[str] = []
    one, other = Managed("one", diary), Managed("other", diary)
    router = Router({"a.**": one, "b.**": other, "c.**": one}, default=RecordingDispatcher())
    async with router:
        assert diary == ["open one", "open other"]
    await router.__aexit__(None, None, None)
    assert sorted(diary[2:]) == ["close one", "close other"]
    async with router:
        assert diary[4:] == ["open one", "open other"]


async def test_those_already_open_are_closed_when_one_does_not_open() -> None:
    diary: list[str] = []
    router = Router({"a.**": Managed("one", diary), "b.**": Managed("other", diary, fails="open")})
    with pytest.raises(RuntimeError, match="other does not open"):
        await router.__aenter__()
    assert diary == ["open one", "close one"]


async def test_all_are_closed_although_one_fails_and_another_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tune(monkeypatch, targets_close_seconds=0.1)
    diary: list[str] = []
    router = Router(
        {
            "a.**": Managed("one", diary),
            "b.**": Managed("two", diary, fails="close"),
            "c.**": Managed("three", diary, hangs=True),
        }
    )
    await router.__aenter__()
    with (
        caplog.at_level(logging.ERROR),
        anyio.fail_after(5),
        pytest.raises(RuntimeError, match="two does not"),
    ):
        await router.__aexit__(None, None, None)
    assert sorted(diary[3:]) == ["close one", "close two"]
    assert "three" in caplog.text


async def test_what_cannot_route_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a route or a default"):
        Router({})
    with pytest.raises(ConfigError, match="must be a mapping"):
        Router([("a.b", RecordingDispatcher())])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a dispatcher"):
        Router({"a.b": object()})  # type: ignore[dict-item]
    with pytest.raises(InvalidTopicPattern):
        Router({"a.>": RecordingDispatcher()})


async def test_routers_and_fan_outs_nest() -> None:
    one, other, third = RecordingDispatcher(), RecordingDispatcher(), RecordingDispatcher()
    router = Router({"a.**": Router({"a.b": FanOut([one, other])}, default=third)})
    async with router:
        await router.dispatch(sample("a.b"))
        await router.dispatch(sample("a.c"))
    assert [len(each.acknowledged) for each in (one, other, third)] == [1, 1, 1]
    assert not isinstance(router, BatchDispatcher)


@pytest.mark.parametrize("make", [lambda one: Router({"a.**": one}), lambda one: FanOut([one])])
async def test_the_last_of_several_who_have_it_open_closes_the_targets(
    make: Callable[[Managed], Router | FanOut],
) -> None:
    diary: list[str] = []
    shared = make(Managed("one", diary))
    async with shared:
        async with shared:
            assert diary == ["open one"]
        assert diary == ["open one"]
    assert diary == ["open one", "close one"]

    async with shared:
        pass
    assert diary == ["open one", "close one"] * 2


async def test_who_opens_it_meanwhile_waits_until_the_targets_are_open() -> None:
    opening, go_on = anyio.Event(), anyio.Event()

    class Slow(Managed):
        async def __aenter__(self) -> None:
            opening.set()
            await go_on.wait()
            await super().__aenter__()

    diary: list[str] = []
    router = Router({"a.**": Slow("slow", diary)})

    async def use() -> None:
        async with router:
            assert diary == ["open slow"]

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use)
            await opening.wait()
            tasks.start_soon(use)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
    assert diary == ["open slow", "close slow"]

"""The fan-out: all targets get a message, and what their failures mean together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from outbox_core.dispatcher import BatchDispatcher, Outcome, Probing
from outbox_core.dispatchers.fan_out import FanOut
from outbox_core.errors import (
    AllPermanent,
    BrokerUnavailable,
    ConfigError,
    DispatchTimeout,
    InvalidDispatcherReturn,
    PermanentError,
    ProviderError,
)
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.samples import again, sample, samples
from outbox_core.testing.recording import RecordingBatchDispatcher, RecordingDispatcher

pytestmark = pytest.mark.asyncio


def failing(*errors: Exception | None) -> list[RecordingDispatcher]:
    targets = [RecordingBatchDispatcher() for _ in errors]
    for target, error in zip(targets, errors, strict=True):
        if error is not None:
            target.fail(error)
    return list(targets)


async def test_every_target_gets_every_message() -> None:
    one, other = RecordingDispatcher(), RecordingDispatcher()
    message = sample("a.b")
    await FanOut([one, other]).dispatch(message)
    assert one.acknowledged == other.acknowledged == [message]


async def test_a_failure_is_retried_to_all_of_them() -> None:
    one, other = RecordingDispatcher(), RecordingDispatcher()
    other.fail(RuntimeError("not now"), times=1)
    fan_out, message = FanOut([one, other]), sample("a.b")
    with pytest.raises(RuntimeError, match="not now"):
        await fan_out.dispatch(message)
    await fan_out.dispatch(again(message))
    assert [one.meta.attempts for one in one.acknowledged] == [1, 2]
    assert [one.meta.attempts for one in other.acknowledged] == [2]


UNAVAILABLE, TIMEOUT = BrokerUnavailable("away"), DispatchTimeout("late")
PERMANENT, OTHER = PermanentError("bad"), RuntimeError("odd")


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([PERMANENT, None], PermanentError),
        ([UNAVAILABLE, None], BrokerUnavailable),
        ([PERMANENT, UNAVAILABLE], BrokerUnavailable),
        ([TIMEOUT, UNAVAILABLE, OTHER], BrokerUnavailable),
        ([TIMEOUT, PERMANENT], DispatchTimeout),
        ([OTHER, PERMANENT], ExceptionGroup),
        ([PERMANENT, PermanentError("too")], AllPermanent),
    ],
)
async def test_what_failures_mean_together(errors: list[Exception | None], kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised:
        await FanOut(failing(*errors)).dispatch(sample("a.b"))
    assert type(raised.value) is kind
    fan_out = FanOut(failing(*errors))
    assert isinstance(fan_out, BatchDispatcher)
    outcomes = await fan_out.dispatch_many(samples("a.b", 2), deadline=anyio.current_time() + 5)
    assert [type(outcome) for outcome in outcomes] == [kind, kind]


async def test_it_takes_windows_when_every_target_does() -> None:
    batches, single = RecordingBatchDispatcher(), RecordingDispatcher()
    assert isinstance(FanOut([batches, RecordingBatchDispatcher()]), BatchDispatcher)
    assert not isinstance(FanOut([batches, single]), BatchDispatcher)


async def test_an_outcome_for_each_message_of_a_window() -> None:
    one, other = RecordingBatchDispatcher(), RecordingBatchDispatcher()
    one.fail(PERMANENT, when=lambda message: message.meta.sequence == 2)
    other.fail(OTHER, when=lambda message: message.meta.sequence == 3)
    fan_out = FanOut([one, other])
    assert isinstance(fan_out, BatchDispatcher)
    outcomes = await fan_out.dispatch_many(samples("a.b", 4), deadline=anyio.current_time() + 5)
    assert list(outcomes) == [None, PERMANENT, OTHER, None]
    assert (len(one.windows), len(other.windows)) == (1, 1)


async def test_a_target_that_fails_as_a_whole_fails_each_message() -> None:
    class Broken(RecordingBatchDispatcher):
        async def dispatch_many(
            self, messages: Sequence[DispatchedMessage], /, *, deadline: float
        ) -> Sequence[Outcome]:
            if len(messages) == 1:
                return None  # type: ignore[return-value]
            if len(messages) == 2:
                return [None]
            if len(messages) == 4:
                return [None, True, None, None]  # type: ignore[list-item]
            raise ProviderError("no channel")

    fan_out = FanOut([RecordingBatchDispatcher(), Broken()])
    assert isinstance(fan_out, BatchDispatcher)
    short = await fan_out.dispatch_many(samples("a.b", 2), deadline=anyio.current_time() + 5)
    assert [type(outcome) for outcome in short] == [InvalidDispatcherReturn] * 2
    assert str(short[0]).startswith(
        "dispatch_many of RecordingBatchDispatcher returned a list of 1 outcome for 2 messages; "
    )
    (none,) = await fan_out.dispatch_many(samples("a.b", 1), deadline=anyio.current_time() + 5)
    assert str(none).startswith("dispatch_many of RecordingBatchDispatcher returned None; return a list ")
    wrong = await fan_out.dispatch_many(samples("a.b", 4), deadline=anyio.current_time() + 5)
    assert [type(outcome) for outcome in wrong] == [
        type(None),
        InvalidDispatcherReturn,
        type(None),
        type(None),
    ]
    assert str(wrong[1]).startswith(
        "dispatch_many of RecordingBatchDispatcher returned a bool as an outcome; "
    )
    broken = await fan_out.dispatch_many(samples("a.b", 3), deadline=anyio.current_time() + 5)
    assert [str(outcome) for outcome in broken] == ["no channel"] * 3


async def test_a_target_cancelled_from_inside_has_not_succeeded() -> None:
    async def cancelled(message: DispatchedMessage) -> None:
        raise asyncio.CancelledError

    with pytest.raises(ProviderError, match="cancelled was cancelled from inside"):
        await FanOut([RecordingDispatcher(), cancelled]).dispatch(sample("a.b"))


async def test_a_target_that_returns_something_has_not_succeeded() -> None:
    class Talkative(RecordingDispatcher):
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            return "ok"  # type: ignore[return-value]

    with pytest.raises(InvalidDispatcherReturn):
        await FanOut([Talkative()]).dispatch(sample("a.b"))


async def test_it_answers_a_probe_when_every_target_does() -> None:
    one, other = RecordingDispatcher(name="one"), RecordingDispatcher(name="other")

    async def unprobed(message: DispatchedMessage) -> None: ...

    fan_out = FanOut([one, other, unprobed])
    assert isinstance(fan_out, Probing)
    await fan_out.probe()
    other.go_down()
    with pytest.raises(BrokerUnavailable, match="other is down"):
        await fan_out.probe()


async def test_what_cannot_fan_out_is_refused() -> None:
    one = RecordingDispatcher()
    with pytest.raises(ConfigError, match="needs a target"):
        FanOut([])
    with pytest.raises(ConfigError, match="twice"):
        FanOut([one, one])
    with pytest.raises(ConfigError, match="sequence of dispatchers"):
        FanOut(one)  # type: ignore[arg-type]

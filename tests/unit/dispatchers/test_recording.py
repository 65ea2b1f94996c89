"""The recording double: what it keeps, and failing on demand."""

from __future__ import annotations

import anyio
import pytest

from outbox_core.dispatcher import BatchDispatcher, Probing
from outbox_core.errors import BrokerUnavailable, ConfigError, DispatchTimeout, PermanentError
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.samples import sample, samples
from outbox_core.testing.recording import RecordingBatchDispatcher, RecordingDispatcher

pytestmark = pytest.mark.asyncio


async def outcomes_of(dispatcher: RecordingDispatcher, messages: list[DispatchedMessage]) -> list[bool]:
    outcomes: list[bool] = []
    for message in messages:
        try:
            await dispatcher.dispatch(message)
        except PermanentError:
            outcomes.append(False)
        else:
            outcomes.append(True)
    return outcomes


async def test_scripts_by_topic_count_and_condition() -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.fail(PermanentError("no"), topic="orders.**", after=1, times=2)
    dispatcher.fail(PermanentError, when=lambda message: message.meta.key == "bad")
    dispatcher.fail(lambda message: PermanentError(message.meta.topic), topic="mail.*")
    orders = samples("orders.v1", 5)
    assert await outcomes_of(dispatcher, orders) == [True, False, False, True, True]
    assert await outcomes_of(dispatcher, [sample("a.b", key="bad"), sample("a.b")]) == [False, True]
    with pytest.raises(PermanentError, match=r"mail\.v1"):
        await dispatcher.dispatch(sample("mail.v1"))
    assert [message.meta.sequence for message in dispatcher.acknowledged] == [1, 4, 5, 1]
    assert len(dispatcher.received) == 8
    dispatcher.heal()
    assert await outcomes_of(dispatcher, [sample("mail.v1")]) == [True]


async def test_an_outage_fails_messages_and_probes() -> None:
    dispatcher = RecordingDispatcher()
    assert isinstance(dispatcher, Probing)
    dispatcher.go_down()
    with pytest.raises(BrokerUnavailable):
        await dispatcher.dispatch(sample("a.b"))
    with pytest.raises(BrokerUnavailable):
        await dispatcher.probe()
    dispatcher.come_up()
    await dispatcher.probe()


async def test_waiting_for_messages() -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.freeze()
    async with anyio.create_task_group() as tasks:
        for message in samples("a.b", 2):
            tasks.start_soon(dispatcher.dispatch, message)
        with pytest.raises(AssertionError, match=r"0 of 2 messages were acknowledged within 0.05 s, after 2"):
            await dispatcher.wait_for(2, timeout=0.05)
        dispatcher.thaw()
        assert len(await dispatcher.wait_for(2)) == 2


async def test_windows() -> None:
    dispatcher = RecordingBatchDispatcher()
    assert isinstance(dispatcher, BatchDispatcher)
    assert not isinstance(RecordingDispatcher(), BatchDispatcher)
    error = PermanentError("no")
    dispatcher.fail(error, when=lambda message: message.meta.sequence == 2)
    messages = samples("a.b", 3)
    assert await dispatcher.dispatch_many(messages, deadline=anyio.current_time() + 5) == [None, error, None]
    assert dispatcher.windows == [messages]
    dispatcher.freeze()
    late = await dispatcher.dispatch_many(messages, deadline=anyio.current_time() + 0.05)
    assert [type(outcome) for outcome in late] == [DispatchTimeout] * 3


async def test_a_script_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="times at least 1"):
        RecordingDispatcher().fail(PermanentError, times=0)
    with pytest.raises(ConfigError, match="after must not be negative"):
        RecordingDispatcher().fail(PermanentError, after=-1)

"""Opening, closing and cancelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from outbox_core.testing.contracts.contract import Contract
from outbox_core.testing.contracts.driving import (
    close_dispatcher,
    dispatch,
    dispatch_window,
    expect,
    failure_of,
    open_dispatcher,
    opened,
    within,
)
from outbox_core.testing.contracts.samples import sample, samples

if TYPE_CHECKING:
    from outbox_core.testing.contracts.broker import Broker

CANCEL_SECONDS = 2.0


class LifecycleContract(Contract):
    """A dispatcher is opened and closed by its relay, which also cancels what takes too long."""

    async def test_it_closes_in_bounded_time_and_twice(self, broker: Broker) -> None:
        dispatcher = broker.make()
        await open_dispatcher(dispatcher)
        try:
            await dispatch(dispatcher, sample(broker.topic))
        finally:
            await close_dispatcher(dispatcher, broker.close_within)
        await close_dispatcher(dispatcher, broker.close_within)

    async def test_it_can_be_opened_again(self, broker: Broker) -> None:
        dispatcher = broker.make()
        messages = samples(broker.topic, 2)
        for message in messages:
            async with opened(broker, dispatcher):
                await dispatch(dispatcher, message)
        expect(list(await broker.stored()) == messages, "not everything sent was stored")

    async def test_it_stays_open_until_the_last_one_has_left(self, broker: Broker) -> None:
        """Two relays may share a dispatcher: the one that stops first does not take it from the other."""
        dispatcher = broker.make()
        first, second = samples(broker.topic, 2)
        async with opened(broker, dispatcher):
            async with opened(broker, dispatcher):
                await dispatch(dispatcher, first)
            await dispatch(dispatcher, second)
        expect(list(await broker.stored()) == [first, second], "not everything sent was stored")

    async def test_two_dispatchers_do_not_disturb_each_other(self, broker: Broker) -> None:
        first, second = samples(broker.topic, 2)
        async with opened(broker) as one:
            async with opened(broker) as other:
                await dispatch(other, first)
            await dispatch(one, second)
        expect(list(await broker.stored()) == [first, second], "not everything sent was stored")

    async def test_after_closing_a_dispatch_ends_with_an_outcome(self, broker: Broker) -> None:
        """Acknowledged and stored, for those that have nothing to close, or failed; never left hanging."""
        message = sample(broker.topic)
        dispatcher = broker.make()
        async with opened(broker, dispatcher):
            pass
        error = await failure_of(dispatcher, message)
        await close_dispatcher(dispatcher, broker.close_within)
        if error is None:
            expect(list(await broker.stored()) == [message], "it was acknowledged and is not stored")

    async def test_cancellation_leaves_it_usable(self, broker: Broker) -> None:
        cancelled, last = samples(broker.topic, 20), sample(broker.topic)
        async with opened(broker) as dispatcher:
            for turns, message in enumerate(cancelled):
                with within(CANCEL_SECONDS, "letting itself be cancelled"):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(failure_of, dispatcher, message)
                        for _ in range(turns):
                            await anyio.lowlevel.checkpoint()
                        tasks.cancel_scope.cancel()
            await dispatch(dispatcher, last)
            expect(last in await broker.stored(), "the message after the cancelled ones is not stored")

    async def test_a_cancelled_window_leaves_it_usable(self, broker: Broker) -> None:
        last = samples(broker.topic, 20)
        async with opened(broker) as dispatcher:
            for turns in (1, 2, 4, 8, 16):
                with within(CANCEL_SECONDS, "letting itself be cancelled"):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(dispatch_window, dispatcher, samples(broker.topic, 20))
                        for _ in range(turns):
                            await anyio.lowlevel.checkpoint()
                        tasks.cancel_scope.cancel()
            outcomes = await dispatch_window(dispatcher, last)
            expect(outcomes == [None] * len(last), f"after a cancelled window the outcomes were {outcomes!r}")
            stored = {message.meta.event_id for message in await broker.stored()}
            expect(
                all(message.meta.event_id in stored for message in last),
                "not every acknowledged message is stored",
            )

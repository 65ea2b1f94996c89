"""A broker that freezes, dies and comes back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from outbox_core.dispatcher import Dispatcher, Probing
from outbox_core.errors import BrokerUnavailable, DispatchTimeout
from outbox_core.testing.contracts.contract import Contract, needs
from outbox_core.testing.contracts.drain import Drain
from outbox_core.testing.contracts.driving import (
    OVERTIME,
    close_dispatcher,
    dispatch,
    dispatch_window,
    expect,
    failure_of,
    open_dispatcher,
    opened,
    recovered,
    within,
)
from outbox_core.testing.contracts.samples import sample, samples

if TYPE_CHECKING:
    from outbox_core.testing.contracts.broker import Broker

DEADLINE = 2.0
MESSAGES = 5_000
KEYS = 250


class OutageContract(Contract):
    """Nothing waits without a bound, nothing is lost, and nobody has to restart the relay afterwards."""

    @needs(lambda capabilities: capabilities.freezes)
    async def test_a_frozen_broker_costs_no_more_than_the_deadline(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            await dispatch(dispatcher, sample(broker.topic))
            async with _frozen(broker):
                outcomes = await dispatch_window(dispatcher, samples(broker.topic, 10), DEADLINE)
                expect(
                    all(isinstance(one, DispatchTimeout | BrokerUnavailable) for one in outcomes),
                    f"on a frozen broker the outcomes were {outcomes!r}",
                )
            await _expect_recovery(broker, dispatcher)

    @needs(lambda capabilities: capabilities.freezes)
    async def test_a_dispatch_to_a_frozen_broker_can_be_cancelled(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            await dispatch(dispatcher, sample(broker.topic))
            async with _frozen(broker):
                with within(DEADLINE + OVERTIME, f"a dispatch cancelled after {DEADLINE:g} s"):
                    error: Exception | None = DispatchTimeout("cancelled")
                    with anyio.move_on_after(DEADLINE):
                        error = await failure_of(dispatcher, sample(broker.topic))
                    expect(error is not None, "a frozen broker acknowledged a message")
            await _expect_recovery(broker, dispatcher)

    @needs(lambda capabilities: capabilities.freezes)
    async def test_a_probe_of_a_frozen_broker_does_not_succeed(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            if not isinstance(dispatcher, Probing):
                return
            async with _frozen(broker):
                alive = False
                with within(DEADLINE + OVERTIME, f"a probe cancelled after {DEADLINE:g} s"):
                    with anyio.move_on_after(DEADLINE):
                        alive = await _answers(dispatcher)
                expect(not alive, "a probe of a frozen broker succeeded")

            async def probe() -> Exception | None:
                return None if await _answers(dispatcher) else BrokerUnavailable("no answer to a probe")

            await recovered(broker, probe, "a probe after the broker thawed")

    @needs(lambda capabilities: capabilities.freezes)
    async def test_it_closes_in_bounded_time_while_the_broker_is_frozen(self, broker: Broker) -> None:
        dispatcher = broker.make()
        await open_dispatcher(dispatcher)
        await dispatch(dispatcher, sample(broker.topic))
        async with _frozen(broker):
            await dispatch_window(dispatcher, samples(broker.topic, 3), DEADLINE / 2)
            await close_dispatcher(dispatcher, broker.close_within)

    @needs(lambda capabilities: capabilities.restarts)
    async def test_a_dead_broker_is_told_from_a_bad_message(self, broker: Broker) -> None:
        """A message that fails with anything else is charged an attempt for what is not its fault."""
        async with opened(broker) as dispatcher:
            await dispatch(dispatcher, sample(broker.topic))
            await broker.kill()
            try:
                outcomes = await dispatch_window(dispatcher, samples(broker.topic, 10), DEADLINE)
            finally:
                await broker.restart()
            expect(
                all(isinstance(one, DispatchTimeout | BrokerUnavailable) for one in outcomes),
                f"on a dead broker the outcomes were {outcomes!r}",
            )
            await _expect_recovery(broker, dispatcher)

    @needs(lambda capabilities: capabilities.restarts)
    async def test_kill_and_restart_in_the_middle_of_a_drain_loses_nothing(self, broker: Broker) -> None:
        messages = samples(broker.topic, MESSAGES, keys=KEYS)
        drain = Drain(messages)

        async def break_it() -> None:
            await drain.reached(MESSAGES // 3)
            await broker.kill()
            await broker.restart()

        async with opened(broker) as dispatcher:
            with within(4 * broker.recovery, f"a drain of {MESSAGES} messages with a restart"):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(break_it)
                    await drain.run(dispatcher)
        stored = await broker.stored()
        missing = {message.meta.event_id for message in messages} - {one.meta.event_id for one in stored}
        expect(not missing, f"{len(missing)} of {MESSAGES} acknowledged messages are lost")
        if self.capabilities.keeps_key_order:
            out_of_order = drain.out_of_order(stored)
            expect(not out_of_order, f"the first arrivals of {out_of_order[:5]} are not in order")


@asynccontextmanager
async def _frozen(broker: Broker) -> AsyncGenerator[None]:
    await broker.freeze()
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await broker.thaw()


async def _expect_recovery(broker: Broker, dispatcher: Dispatcher) -> None:
    """The dispatcher works again by itself, and what it acknowledges is stored."""
    message = sample(broker.topic)

    async def attempt() -> Exception | None:
        with anyio.move_on_after(DEADLINE):
            return await failure_of(dispatcher, message)
        return DispatchTimeout("not acknowledged in time")

    await recovered(broker, attempt, "a dispatch after the outage")
    stored = {one.meta.event_id for one in await broker.stored()}
    expect(message.meta.event_id in stored, "the message acknowledged after the outage is not stored")


async def _answers(dispatcher: Probing) -> bool:
    try:
        await dispatcher.probe()
    except Exception:  # whatever a probe raises means the same: no sign of life
        return False
    return True

"""Many messages at once: an outcome for each, whatever becomes of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from outbox_core.dispatcher import BatchDispatcher, Probing
from outbox_core.errors import BrokerUnavailable, DispatchTimeout
from outbox_core.testing.contracts.contract import Contract, needs
from outbox_core.testing.contracts.driving import OVERTIME, dispatch_window, expect, opened, within
from outbox_core.testing.contracts.samples import sample, samples

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage
    from outbox_core.testing.contracts.broker import Broker

WINDOW = 200


class WindowContract(Contract):
    """`dispatch_many` where there is one, and `dispatch` many times at once where not."""

    async def test_a_window_is_delivered_whole(self, broker: Broker) -> None:
        messages = samples(broker.topic, WINDOW)
        async with opened(broker) as dispatcher:
            outcomes = await dispatch_window(dispatcher, messages)
        expect(outcomes == [None] * WINDOW, f"the outcomes were {_different(outcomes)}")
        await _expect_exactly(broker, messages)

    @needs(lambda capabilities: capabilities.refuses_messages)
    async def test_poison_in_the_middle_costs_only_itself(self, broker: Broker) -> None:
        messages = samples(broker.topic, 21)
        poison = self._poison(broker)
        async with opened(broker) as dispatcher:
            outcomes = await dispatch_window(dispatcher, [*messages[:10], poison, *messages[10:]])
        expect(outcomes[10] is not None, "the message that the broker refuses was acknowledged")
        expect(
            not isinstance(outcomes[10], BrokerUnavailable),
            f"{outcomes[10]!r} says that the broker is away, which stops every other message too",
        )
        others = outcomes[:10] + outcomes[11:]
        expect(others == [None] * len(messages), f"the outcomes of the others were {_different(others)}")
        await _expect_exactly(broker, messages)

    async def test_an_empty_window_has_no_outcomes(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            expect(await dispatch_window(dispatcher, []) == [], "an empty window had outcomes")

    async def test_two_windows_at_once_do_not_mix(self, broker: Broker) -> None:
        first, second = samples(broker.topic, 50), samples(broker.topic, 50)
        outcomes: dict[str, object] = {}
        async with opened(broker) as dispatcher, anyio.create_task_group() as tasks:

            async def send(name: str, messages: list[DispatchedMessage]) -> None:
                outcomes[name] = await dispatch_window(dispatcher, messages)

            tasks.start_soon(send, "first", first)
            tasks.start_soon(send, "second", second)
        expect(outcomes == {"first": [None] * 50, "second": [None] * 50}, f"the outcomes were {outcomes}")
        await _expect_exactly(broker, [*first, *second])

    async def test_a_deadline_in_the_past_is_an_outcome(self, broker: Broker) -> None:
        messages = samples(broker.topic, 3)
        async with opened(broker) as dispatcher:
            if not isinstance(dispatcher, BatchDispatcher):
                return
            with within(OVERTIME, "a window whose deadline has passed"):
                outcomes = await dispatcher.dispatch_many(messages, deadline=anyio.current_time() - 1)
                expect(
                    len(outcomes) == 3
                    and all(one is None or isinstance(one, DispatchTimeout) for one in outcomes),
                    f"the outcomes were {outcomes!r}; what is open at the deadline is a DispatchTimeout",
                )

    async def test_a_probe_publishes_nothing(self, broker: Broker) -> None:
        async with opened(broker) as dispatcher:
            if isinstance(dispatcher, Probing):
                with within(5, "a probe of a working broker"):
                    await dispatcher.probe()
        expect(len(await broker.stored()) == 0, "a probe left a message behind")

    def _poison(self, broker: Broker) -> DispatchedMessage:
        if self.capabilities.refuses_unknown_destinations:
            return sample(broker.unknown_topic)
        return sample(
            broker.topic, b"x" * ((self.capabilities.max_bytes or 0) + 1), content_type="text/plain"
        )


async def _expect_exactly(broker: Broker, messages: list[DispatchedMessage]) -> None:
    sent = {message.meta.event_id: message for message in messages}
    stored = {message.meta.event_id: message for message in await broker.stored()}
    expect(
        stored == sent,
        f"{len(sent.keys() - stored.keys())} acknowledged messages are not stored,"
        f" {len(stored.keys() - sent.keys())} are stored that were not acknowledged",
    )


def _different(outcomes: list[BaseException | None]) -> str:
    shown = {f"{number}: {outcome!r}" for number, outcome in enumerate(outcomes) if outcome is not None}
    return f"{len(outcomes)}, of which failed {sorted(shown)[:5]}"

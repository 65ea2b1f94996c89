"""The dispatchers' suite notices what it is there to notice: each fault below fails the test named for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from outbox_core.dispatcher import Dispatcher, Outcome
from outbox_core.errors import BrokerUnavailable, PermanentError, ProviderError
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.dispatcher import Broker, Capabilities, DispatcherContract, OutageContract
from outbox_core.testing.recording import RecordingBatchDispatcher, RecordingDispatcher
from tests.kit.tuning import tune

pytestmark = pytest.mark.asyncio


class Suite(DispatcherContract):
    capabilities = Capabilities(max_bytes=1_000_000)


class FaultyBroker(Broker):
    topic = "contract.core.v1"
    recovery = 0.5
    close_within = 0.2

    def __init__(self, dispatcher: RecordingDispatcher) -> None:
        self.dispatcher = dispatcher

    def make(self) -> Dispatcher:
        return self.dispatcher

    def make_with_password(self, password: str) -> Dispatcher:
        return Telling(password)

    async def stored(self) -> Sequence[DispatchedMessage]:
        return self.dispatcher.acknowledged

    async def freeze(self) -> None:
        self.dispatcher.freeze()

    async def thaw(self) -> None:
        self.dispatcher.thaw()

    async def kill(self) -> None:
        self.dispatcher.go_down()

    async def restart(self) -> None:
        self.dispatcher.come_up()


class Telling(RecordingDispatcher):
    def __init__(self, password: str) -> None:
        super().__init__()
        logging.getLogger("a.client").debug("connecting with %s", password)


class Altering(RecordingDispatcher):
    """Delivers something else than it was given."""

    def __init__(self, change: Callable[[DispatchedMessage], DispatchedMessage]) -> None:
        super().__init__()
        self.change = change

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        await super().dispatch(self.change(message))


class Forgetful(RecordingDispatcher):
    """Acknowledges before anything is stored."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.received.append(message)


class Talkative(RecordingDispatcher):
    async def dispatch(self, message: DispatchedMessage, /) -> Any:
        await super().dispatch(message)
        return "ok"


class Reversing(RecordingDispatcher):
    async def dispatch(self, message: DispatchedMessage, /) -> None:
        await super().dispatch(message)
        self.acknowledged.reverse()


class Blaming(RecordingBatchDispatcher):
    """One bad message fails its window, and is reported as an outage."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if message.meta.topic == Broker.unknown_topic:
            raise BrokerUnavailable("no such destination")
        await super().dispatch(message)

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        outcomes = await super().dispatch_many(messages, deadline=deadline)
        failed = next((outcome for outcome in outcomes if outcome is not None), None)
        return [failed] * len(outcomes)


class Short(RecordingBatchDispatcher):
    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        return (await super().dispatch_many(messages, deadline=deadline))[1:]


class Patient(RecordingBatchDispatcher):
    """Waits longer than its deadline."""

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        return await super().dispatch_many(messages, deadline=deadline + 60)


class Clinging(RecordingDispatcher):
    """Takes for ever to close, and is broken by a cancellation."""

    broken = False

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if self.broken:
            raise ProviderError("the connection is in an unknown state")
        try:
            await super().dispatch(message)
        except anyio.get_cancelled_exc_class():
            self.broken = True
            raise

    async def __aenter__(self) -> Clinging:
        return self

    async def __aexit__(self, *_: object) -> None:
        await anyio.sleep(60)


class Undead(RecordingDispatcher):
    """Never recovers from an outage, for which it blames the message."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        try:
            await super().dispatch(message)
        except BrokerUnavailable:
            self.fail(ProviderError("closed"))
            raise ProviderError("closed") from None

    async def probe(self) -> None:
        return


class Losing(RecordingDispatcher):
    """What was acknowledged before the outage is gone after it."""

    def go_down(self) -> None:
        super().go_down()
        self.acknowledged.clear()


FAULTS: list[tuple[Callable[[], RecordingDispatcher], str]] = [
    (
        lambda: Altering(lambda one: replace(one, payload=one.payload[:-1])),
        "a_json_payload_comes_back_as_it_was_sent",
    ),
    (
        lambda: Altering(lambda one: replace(one, payload=one.payload.decode("ascii", "ignore").encode())),
        "text_in_every_script_comes_back_as_it_was_sent",
    ),
    (
        lambda: Altering(lambda one: replace(one, payload=one.payload or b"null")),
        "an_empty_body_comes_back_empty",
    ),
    (lambda: Altering(lambda one: replace(one, payload=one.payload[:65536])), "500_kilobytes_come_back"),
    (
        lambda: Altering(lambda one: replace(one, content_type="application/json")),
        "a_body_of_bytes_comes_back_untouched",
    ),
    (
        lambda: Altering(lambda one: replace(one, meta=replace(one.meta, headers={}))),
        "headers_key_and_trace_come_back",
    ),
    (
        lambda: Altering(lambda one: replace(one, meta=replace(one.meta, key=None))),
        "headers_key_and_trace_come_back",
    ),
    (Forgetful, "acknowledged_means_stored"),
    (Forgetful, "a_window_is_delivered_whole"),
    (Talkative, "acknowledged_means_stored"),
    (Reversing, "messages_of_a_key_keep_their_order"),
    (RecordingDispatcher, "a_message_that_is_too_large_is_refused_for_good"),
    (RecordingDispatcher, "an_unknown_destination_fails_that_message_alone"),
    (Blaming, "an_unknown_destination_fails_that_message_alone"),
    (RecordingDispatcher, "poison_in_the_middle_costs_only_itself"),
    (Blaming, "poison_in_the_middle_costs_only_itself"),
    (Short, "a_window_is_delivered_whole"),
    (Patient, "a_frozen_broker_costs_no_more_than_the_deadline"),
    (Clinging, "it_closes_in_bounded_time_and_twice"),
    (Clinging, "it_closes_in_bounded_time_while_the_broker_is_frozen"),
    (Undead, "a_dead_broker_is_told_from_a_bad_message"),
    (Undead, "a_probe_of_a_frozen_broker_does_not_succeed"),
    (Losing, "kill_and_restart_in_the_middle_of_a_drain_loses_nothing"),
    (Reversing, "kill_and_restart_in_the_middle_of_a_drain_loses_nothing"),
    (RecordingDispatcher, "a_password_is_never_shown"),
]


@pytest.fixture(autouse=True)
def shorter_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(
        monkeypatch,
        contract_deadline_seconds=0.2,
        contract_outage_messages=1_000,
        contract_cancel_seconds=0.5,
    )


@pytest.mark.parametrize(("faulty", "name"), FAULTS)
async def test_a_fault_is_noticed(faulty: Callable[[], RecordingDispatcher], name: str) -> None:
    test = getattr(Suite(), f"test_{name}")
    with pytest.raises(AssertionError):
        await test(FaultyBroker(faulty()))


async def test_a_dispatcher_broken_by_cancellation_is_noticed() -> None:
    class Broken(Clinging):
        async def __aexit__(self, *_: object) -> None:
            return

    for test in (
        Suite().test_cancellation_leaves_it_usable,
        Suite().test_a_cancelled_window_leaves_it_usable,
    ):
        with pytest.raises((ProviderError, AssertionError)):
            await test(FaultyBroker(Broken()))


async def test_a_test_of_what_is_declared_impossible_is_not_there() -> None:
    class Limited(DispatcherContract):
        capabilities = Capabilities(
            refuses_unknown_destinations=False, freezes=False, takes_credentials=False
        )

    class Unlimited(Limited):
        capabilities = Capabilities(max_bytes=10)

    assert Limited.test_an_unknown_destination_fails_that_message_alone is None
    assert Limited.test_poison_in_the_middle_costs_only_itself is None
    assert Limited.test_a_frozen_broker_costs_no_more_than_the_deadline is None
    assert callable(Limited.test_an_unknown_destination_is_taken_as_declared)
    assert callable(Limited.test_a_dead_broker_is_told_from_a_bad_message)
    assert callable(Unlimited.test_a_frozen_broker_costs_no_more_than_the_deadline)
    assert Unlimited.test_an_unknown_destination_is_taken_as_declared is None
    assert callable(OutageContract.test_a_frozen_broker_costs_no_more_than_the_deadline)


async def test_a_false_declaration_is_noticed() -> None:
    class Limited(DispatcherContract):
        capabilities = Capabilities(refuses_unknown_destinations=False)

    dispatcher = RecordingDispatcher()
    dispatcher.fail(PermanentError("no such destination"))
    with pytest.raises(AssertionError, match="refuses_unknown_destinations is False"):
        await Limited().test_an_unknown_destination_is_taken_as_declared(FaultyBroker(dispatcher))


class BareBroker(Broker):
    topic = "contract.core.v1"

    def make(self) -> Dispatcher:
        return RecordingDispatcher()

    async def stored(self) -> Sequence[DispatchedMessage]:
        return []


async def test_what_a_broker_does_not_implement_names_the_capability_to_switch_off() -> None:
    bare = BareBroker()
    needed = {"freeze": "freezes", "thaw": "freezes", "kill": "restarts", "restart": "restarts"}
    for method, capability in needed.items():
        with pytest.raises(NotImplementedError) as raised:
            await getattr(bare, method)()
        assert str(raised.value) == (
            f"BareBroker does not implement {method}, which the tests of the capability {capability} need:"
            f" implement it, or declare Capabilities({capability}=False) in the suite's class"
        )
        assert hasattr(Capabilities(), capability)
    with pytest.raises(NotImplementedError, match=r"Capabilities\(takes_credentials=False\)"):
        bare.make_with_password("x")

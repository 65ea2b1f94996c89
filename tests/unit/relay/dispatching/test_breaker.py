"""The breaker: what counts as an outage, when it is tried again and what ends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.relay.dispatching.breaker import BreakerState
from tests.kit.deliveries import breaker

PATIENCE = 30.0


def test_three_timeouts_in_silence_are_an_outage() -> None:
    subject = breaker(PATIENCE)
    assert [subject.timed_out(now, 0.0) for now in (30.0, 30.1, 30.2)] == [False, False, True]


def test_timeouts_amid_acknowledgements_are_not() -> None:
    subject = breaker(PATIENCE)
    for now in range(30, 200, 10):
        assert not subject.timed_out(now, now - PATIENCE)
        subject.acknowledged(now + 1)


def test_a_recent_acknowledgement_outweighs_many_timeouts() -> None:
    subject = breaker(PATIENCE)
    subject.acknowledged(100.0)
    assert not any(subject.timed_out(110.0, 80.0) for _ in range(50))
    assert subject.timed_out(130.0, 80.0)


def test_an_answered_probe_starts_the_count_again() -> None:
    subject = breaker(PATIENCE)
    subject.timed_out(30.0, 0.0)
    subject.timed_out(31.0, 0.0)
    subject.answered()
    assert not subject.timed_out(32.0, 0.0)


def test_an_outage_is_news_once_and_ends_with_an_acknowledgement() -> None:
    subject = breaker(PATIENCE)
    assert subject.open(10.0)
    assert subject.state == BreakerState.OPEN.value
    assert not subject.open(10.5)
    subject.half_open(0.0, answered=True)
    assert subject.state == BreakerState.HALF_OPEN.value
    assert not subject.open(12.0)
    assert subject.opened_at == 10.0
    subject.half_open(0.0, answered=True)
    assert subject.acknowledged(20.0)
    assert subject.state == BreakerState.CLOSED.value
    assert not subject.acknowledged(21.0)
    assert subject.open(30.0)


def test_the_pauses_between_trials_grow() -> None:
    subject = breaker(PATIENCE)
    subject.open(0.0)
    waits = [subject.retry_at]
    for _ in range(10):
        subject.probe_failed(100.0)
        waits.append(subject.retry_at - 100.0)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    subject.half_open(0.0, answered=True)
    subject.acknowledged(200.0)
    subject.open(300.0)
    assert subject.retry_at == 301.0


@pytest.mark.parametrize(("answered", "last_wait"), [(True, 1.0), (False, 8.0)])
def test_only_without_an_answer_each_failed_trial_is_further_from_the_next(
    answered: bool, last_wait: float
) -> None:
    subject = breaker(PATIENCE)
    subject.open(0.0)
    for _ in range(3):
        subject.half_open(0.0, answered=answered)
        subject.open(100.0)
    assert subject.retry_at == 100.0 + last_wait


def test_an_answered_probe_of_a_broker_that_is_full_shows_nothing() -> None:
    """Its next trial is later each time."""
    subject = breaker(PATIENCE)
    waits: list[float] = []
    for _ in range(6):
        subject.open(0.0, broker_full=True)
        waits.append(subject.retry_at)
        assert not subject.half_open(0.0, answered=True)
        assert not subject.probe_answered
    assert waits == [1, 2, 4, 8, 16, 32]
    subject.open(0.0)
    assert subject.half_open(0.0, answered=True)


EVENTS = st.lists(
    st.sampled_from(["ack", "answered", "timeout", "open", "probe failed", "half open", "unanswered"]),
    max_size=60,
)


@given(EVENTS)
def test_whatever_happens_the_next_try_is_ahead_and_an_acknowledgement_closes(events: list[str]) -> None:
    subject = breaker(PATIENCE)
    for now, event in enumerate(events):
        if event == "ack":
            subject.acknowledged(now)
            assert subject.state == BreakerState.CLOSED.value
        elif event == "answered":
            subject.answered()
        elif event == "timeout":
            subject.timed_out(now, now - PATIENCE)
        elif event == "open":
            subject.open(now)
            assert subject.state == BreakerState.OPEN.value
        elif event == "probe failed" and subject.state is BreakerState.OPEN:
            subject.probe_failed(now)
            assert now < subject.retry_at <= now + 60
        elif event in ("half open", "unanswered"):
            was = subject.state
            subject.half_open(0.0, answered=event == "half open")
            assert (subject.state is BreakerState.HALF_OPEN) == (was is not BreakerState.CLOSED)

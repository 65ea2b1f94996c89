"""The verdict on a relay, from the events it reported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from outbox_core import observer as events
from outbox_core.errors import ConfigError
from outbox_core.relay.health import Health, HealthLimits, Vitals
from outbox_core.relay.run import RelayState
from outbox_core.relay.settings import RelaySettings
from outbox_core.status import Count, Leadership
from outbox_core.table import TableName
from tests.kit.samples import TABLE, status

OTHER = TableName.parse("billing.outbox")
INTERVAL = 15.0


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("outbox_core.relay.health.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def vitals(*tables: TableName, measured_every: float | None = INTERVAL, **settings: Any) -> Vitals:
    return Vitals(tables or (TABLE,), RelaySettings(**settings), measured_every)


def verdict(
    observed: Vitals, state: RelayState = RelayState.RUNNING, limits: HealthLimits | None = None
) -> Health:
    return observed.health(state, None, limits or HealthLimits())


@pytest.mark.parametrize(
    ("state", "live", "ready"),
    [
        (RelayState.STARTING, True, False),
        (RelayState.RUNNING, True, True),
        (RelayState.STOPPING, True, False),
        (RelayState.STOPPED, False, False),
    ],
)
def test_a_relay_in_each_of_its_states(clock: Clock, state: RelayState, live: bool, ready: bool) -> None:
    found = verdict(vitals(), state)
    assert (found.live, found.ready, found.lagging) == (live, ready, False)
    assert found.reasons == (() if ready else (f"the relay is {state.value}",))
    assert (found.lag, found.pending) == (None, None)


def test_one_that_died_says_of_what(clock: Clock) -> None:
    found = vitals().health(RelayState.STOPPED, RuntimeError("CANARY"), HealthLimits())
    assert (found.live, found.reasons) == (False, ("the relay ended with RuntimeError",))


def test_a_stand_by_is_ready_and_the_leader_has_a_term(clock: Clock) -> None:
    observed = vitals()
    observed(events.Measured(TABLE, status()))
    clock.now += 3
    assert verdict(observed).ready
    assert verdict(observed).reasons == ()
    assert verdict(observed).tables[0].term is None
    observed(events.LeaderGained(TABLE, 4))
    assert verdict(observed).tables[0].term == 4
    observed(events.LeaderLost(TABLE, 4, "why"))
    assert verdict(observed).tables[0].term is None


def test_a_table_without_leader_is_a_reason_once_an_election_should_be_over(clock: Clock) -> None:
    observed = vitals(takeover=8.0)
    observed(events.Measured(TABLE, status(leader=False)))
    assert verdict(observed).reasons == ()
    clock.now += 20
    observed(events.Measured(TABLE, status(leader=False)))
    assert verdict(observed).reasons == (f"{TABLE}: no relay leads",)
    assert verdict(observed).ready
    observed(events.Measured(TABLE, replace(status(), leader=Leadership(1, "h", 30.0))))
    assert verdict(observed).reasons == (f"{TABLE}: no relay leads",)
    observed(events.LeaderGained(TABLE, 2))
    assert verdict(observed).reasons == ()


@pytest.mark.parametrize("interval", [INTERVAL, 120.0])
def test_a_table_without_leader_stays_a_reason_from_one_measurement_to_the_next(
    clock: Clock, interval: float
) -> None:
    observed = vitals(takeover=8.0, measured_every=interval)
    clock.now += interval
    observed(events.Measured(TABLE, status(leader=False)))
    clock.now += interval + 1
    assert f"{TABLE}: no relay leads" in verdict(observed).reasons
    clock.now += 10  # that measurement failed, and nothing is known
    assert verdict(observed).reasons == ()


def test_without_single_active_no_relay_needs_to_lead(clock: Clock) -> None:
    observed = vitals(single_active=False)
    clock.now += 50
    observed(events.Measured(TABLE, status(leader=False)))
    assert verdict(observed).reasons == ()


def test_it_is_not_ready_while_the_database_does_not_answer(clock: Clock) -> None:
    observed = vitals()
    observed(events.Reconnecting(TABLE, "no answer", 1.0))
    found = verdict(observed)
    assert (found.live, found.ready) == (True, False)
    assert found.reasons == (f"{TABLE}: trouble with the database: no answer",)
    observed(events.Claimed(TABLE, 1, 1, 0.1))
    assert verdict(observed).ready


def test_trouble_that_nothing_more_is_heard_of_is_over(clock: Clock) -> None:
    observed = vitals(database_timeout=5.0)
    observed(events.Reconnecting(TABLE, "no answer", 1.0))
    clock.now += 7.9
    assert not verdict(observed).ready
    clock.now += 0.2
    assert verdict(observed).ready


def test_limits_of_backlog_and_age(clock: Clock) -> None:
    observed = vitals(TABLE, OTHER)
    observed(events.Measured(TABLE, status(Count(10), age=100.0)))
    assert verdict(observed).lag is None  # the other is not known yet
    observed(events.Measured(OTHER, status(Count(10_000, exact=False), age=None)))
    found = verdict(observed)
    assert (found.lag, found.pending, found.lagging) == (100.0, Count(10_010, exact=False), False)
    late = verdict(observed, limits=HealthLimits(max_age=99.5))
    assert (late.lagging, late.ready) == (True, True)
    assert late.reasons == (f"{TABLE}: the oldest message has waited 100 s, more than 99.5 s",)
    many = verdict(observed, limits=HealthLimits(max_pending=9_999, max_age=None))
    assert many.reasons == (f"{OTHER}: at least 10,000 messages are pending, more than 9,999",)


def test_figures_that_are_too_old_are_not_trusted(clock: Clock) -> None:
    observed = vitals(database_timeout=5.0)
    observed(events.Measured(TABLE, status()))
    clock.now += 4 * INTERVAL + 4
    assert not verdict(observed).lagging
    clock.now += 2
    found = verdict(observed)
    assert (found.lagging, found.ready) == (True, True)
    assert found.reasons == (f"{TABLE}: the last figures are 66 s old",)


def test_a_relay_that_never_measures_never_lags(clock: Clock) -> None:
    observed = vitals(measured_every=None)
    clock.now += 10_000
    assert not verdict(observed).lagging


def test_an_unavailable_destination_is_a_reason_and_no_more(clock: Clock) -> None:
    observed = vitals()
    observed(events.BreakerOpened(TABLE, "kafka", "E", 1.0))
    clock.now += 12
    observed(events.BreakerOpened(OTHER, "kafka", "E", 1.0))
    found = verdict(observed)
    assert (found.ready, found.reasons) == (True, ("kafka has been unavailable for 12 s",))
    observed(events.BreakerClosed(OTHER, "kafka", 12.0))
    assert verdict(observed).reasons == ()


def test_as_json(clock: Clock) -> None:
    observed = vitals()
    observed(events.Measured(TABLE, status(Count(12), age=3.5)))
    assert json.loads(json.dumps(verdict(observed).as_json())) == {
        "live": True,
        "ready": True,
        "lagging": False,
        "lag_seconds": 3.5,
        "pending": {"value": 12, "exact": True},
        "figures_age_seconds": 0.0,
        "reasons": [],
    }
    unknown = verdict(vitals()).as_json()
    assert (unknown["pending"], unknown["figures_age_seconds"]) == (None, None)


def test_figures_are_as_old_as_the_oldest_measurement_of_a_table(clock: Clock) -> None:
    observed = vitals(TABLE, OTHER)
    observed(events.Measured(TABLE, status(Count(1))))
    clock.now += 10
    first = verdict(observed)
    assert (first.age, [table.age for table in first.tables]) == (None, [10.0, None])
    observed(events.Measured(OTHER, replace(status(Count(2)), table=OTHER)))
    clock.now += 2.5
    found = verdict(observed)
    assert (found.pending, found.age, [table.age for table in found.tables]) == (Count(3), 12.5, [12.5, 2.5])
    assert found.as_json()["figures_age_seconds"] == 12.5


@pytest.mark.parametrize("given", [{"max_age": -1.0}, {"max_pending": -1}, {"max_age": float("nan")}])
def test_limits_are_not_negative(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a number that is not negative, or None"):
        HealthLimits(**given)

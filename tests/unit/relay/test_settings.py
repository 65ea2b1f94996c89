"""Settings that cannot work are refused with the numbers that show why."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.cleaner import CleanerSettings
from outbox_core.errors import ConfigError
from outbox_core.relay import Relay
from outbox_core.relay.settings import MARGIN, RelaySettings
from outbox_core.stores.memory import MemoryStore


def test_the_defaults_are_sound() -> None:
    settings = RelaySettings()
    assert (settings.batch_size, settings.poll_interval, settings.lock_ttl) == (100, 1.0, 60.0)
    assert (settings.max_attempts, settings.dispatch_timeout) == (25, 30.0)
    assert settings.single_active
    assert settings.on_published == "mark"


def test_a_lease_must_outlast_what_is_done_under_it() -> None:
    with pytest.raises(ConfigError) as refused:
        RelaySettings(lock_ttl=20, dispatch_timeout=15, database_timeout=3)
    message = str(refused.value)
    for number in ("lock_ttl=20 s", "dispatch_timeout=15 s", "database_timeout=3 s", "22 s in all"):
        assert number in message


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0, 100))
def test_a_dispatch_that_may_start_ends_within_its_lease(
    dispatch: float, database: float, spare: float
) -> None:
    settings = RelaySettings(
        dispatch_timeout=dispatch,
        database_timeout=database,
        lock_ttl=dispatch + 2 * database + MARGIN + spare + 1e-6,
        takeover=max(database, 1.0),
    )
    assert settings.trusted >= database * 0.999
    latest = settings.trusted + settings.dispatch_timeout + settings.database_timeout
    assert latest <= settings.lock_ttl - MARGIN + 1e-6


async def _nowhere(message: object) -> None:
    raise AssertionError(message)


class _Later:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize(
    "name",
    [
        "batch_size", "batch_bytes", "concurrency", "poll_interval", "lock_ttl", "max_attempts",
        "dispatch_timeout", "database_timeout", "backoff_base", "takeover",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_a_number_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    given_settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=rf"^{name} must .*got {value!r}$"):
        RelaySettings(**given_settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_published": "drop"}, "on_published must be 'mark' or 'delete', got 'drop'"),
        ({"on_dead": "wait"}, "on_dead must be 'skip' or 'block', got 'wait'"),
        ({"poll_interval": 1e-9}, "poll_interval must be from 0.001 to 86400 s, got 1e-09"),
        (
            {"on_dead": "block", "single_active": False},
            "on_dead='block' needs single_active=True: relays side by side",
        ),
        ({"last_error_max_bytes": 10}, "last_error_max_bytes must be at least 64, got 10"),
        ({"backoff_jitter": -0.1}, r"backoff_jitter must not be negative or infinite, got -0\.1"),
    ],
)
def test_choices_and_bounds(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RelaySettings(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"takeover": 0.4}, "takeover must be from 0.5 to 3600 s, got 0.4"),
        ({"takeover": 3601}, "takeover must be from 0.5 to 3600 s, got 3601"),
        ({"takeover": 30_000_000.0}, "takeover must be from 0.5 to 3600 s, got 30000000.0"),
        ({"database_timeout": 0.0004}, "database_timeout must be from 0.01 to 3600 s, got 0.0004"),
        (
            {"database_timeout": 4000.0, "lock_ttl": 9000.0},
            "database_timeout must be from 0.01 to 3600 s, got 4000.0",
        ),
        (
            {"takeover": 4, "database_timeout": 5},
            (
                "takeover=4 s is too short: a heartbeat, sent every 0.5 s, may take database_timeout=5 s, and so may"
                " the claim that a new leader has to wait for; raise takeover or lower database_timeout"
            ),
        ),
    ],
)
def test_a_takeover_and_the_database_s_time_must_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RelaySettings(**settings)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        {"takeover": 0.5, "database_timeout": 0.5},
        {"takeover": 3600.0, "database_timeout": 0.01},
        {"takeover": 5, "database_timeout": 5},
        {"takeover": 1, "database_timeout": 5, "single_active": False},
    ],
)
def test_takeovers_that_can_work_are_taken(settings: dict[str, Any]) -> None:
    assert RelaySettings(**settings).takeover == settings["takeover"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"random": 0.5}, "random must be a function that gives numbers from 0 to 1, got 0.5"),
        ({"cleaner": 7}, "cleaner must be CleanerSettings or None, got 7"),
        ({"cleaner": False}, "cleaner must be CleanerSettings or None, got False"),
        ({"cleaner": CleanerSettings}, f"cleaner must be CleanerSettings or None, got {CleanerSettings!r}"),
        ({"monitor": "15 s"}, "monitor must be MonitorSettings or None, got '15 s'"),
        (
            {"observers": [_nowhere]},
            (
                "observer _nowhere is asynchronous, and the relay would not wait for it: observers are plain functions;"
                " put what takes time into a queue of yours"
            ),
        ),
        (
            {"observers": [_Later()]},
            (
                "observer _Later is asynchronous, and the relay would not wait for it: observers are plain functions;"
                " put what takes time into a queue of yours"
            ),
        ),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_when_the_relay_is_made(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Relay(MemoryStore, table="orders_outbox", dispatcher=_nowhere, **arguments)
    assert str(refused.value) == message


def test_an_unknown_setting_is_named_beside_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown relay setting batchsize; known are .*batch_size"):
        Relay(MemoryStore, table="orders_outbox", dispatcher=_nowhere, batchsize=3)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, r"give either table= or tables="),
        ({"table": "a_outbox", "tables": ["b_outbox"]}, r"give either table= or tables="),
        ({"tables": "a_outbox"}, "got the str 'a_outbox'; write table= for one"),
        ({"tables": ["a_outbox", "public.a_outbox"]}, "named twice"),
    ],
)
def test_tables(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Relay(MemoryStore, dispatcher=_nowhere, **tables)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as values:
        RelaySettings(batch_size=0, on_dead="wait", takeover=0.1)
    assert str(values.value) == (
        "batch_size must be greater than 0, got 0; takeover must be from 0.5 to 3600 s, got 0.1;"
        " on_dead must be 'skip' or 'block', got 'wait'"
    )
    with pytest.raises(ConfigError) as together:
        RelaySettings(lock_ttl=3.0, takeover=1.0)
    assert "lock_ttl=3 s is too short" in str(together.value)
    assert "takeover=1 s is too short" in str(together.value)

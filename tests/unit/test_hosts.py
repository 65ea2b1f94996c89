"""Several hosts in one database URL: who did not answer is asked last."""

from __future__ import annotations

import pytest

from outbox_core.stores.postgres.hosts import Hosts

TWO = "postgresql://user:p%40ss@db1:5432,db2:6432/shop?target_session_attrs=read-write"


def test_who_was_silent_is_asked_last() -> None:
    hosts = Hosts(TWO, {})
    assert hosts.arguments() == {"host": ["db1", "db2"], "port": [5432, 6432]}
    hosts.was_silent(hosts.first)
    assert hosts.arguments() == {"host": ["db2", "db1"], "port": [6432, 5432]}


def test_several_who_find_it_out_at_once_change_it_once() -> None:
    hosts = Hosts(TWO, {})
    asked = hosts.first
    hosts.was_silent(asked)
    hosts.was_silent(asked)
    assert hosts.first == ("db2", "6432")


@pytest.mark.parametrize(
    ("dsn", "arguments"),
    [
        ("postgresql://db1/shop", {}),
        ("postgresql:///shop?host=/run/postgresql", {}),
        ("postgresql://[::1]:5432/shop", {}),
        ("postgresql://[::1", {}),
        ("postgresql://db1,db2:6432/shop", {}),
        ("postgresql://db1:5432,/shop", {}),
        (TWO, {"host": "db3"}),
        (TWO, {"port": 7000}),
    ],
)
def test_one_host_or_the_callers_own_are_left_to_the_driver(dsn: str, arguments: dict[str, object]) -> None:
    hosts = Hosts(dsn, arguments)
    assert hosts.arguments() == {}
    hosts.was_silent(hosts.first)

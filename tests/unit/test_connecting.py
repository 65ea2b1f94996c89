"""An address is shown without secrets, and an error with what to do about it."""

from __future__ import annotations

import socket
from typing import Any

import asyncpg
import pytest

from outbox_core.errors import ConfigError, StorageUnavailable
from outbox_core.stores.postgres.connecting import address, flaw, obstacle, refusal
from outbox_core.stores.postgres.sessions import Sessions
from outbox_core.stores.postgres.sql import query
from outbox_core.table import TableName


@pytest.mark.parametrize(
    ("url", "arguments", "shown"),
    [
        ("postgresql://u:CANARY@db:6432/shop", {}, "db:6432/shop"),
        ("postgresql://u:CANARY@db/shop?sslpassword=CANARY", {}, "db:5432/shop"),
        ("postgresql://u:CANARY@db/shop", {"host": "other", "port": 9, "database": "d"}, "other:9/d"),
        ("postgresql://u:CANARY@db", {"password": "CANARY"}, "db:5432/u"),
        ("postgresql:///shop?host=/run/pg&port=5433", {}, "/run/pg:5433/shop"),
        ("postgresql://u@/shop?host=/run/pg", {}, "/run/pg:5432/shop"),
        ("postgresql://u:CANARY@one:1,two:2,three/shop", {}, "one:1,two:2,three:5432/shop"),
        ("postgresql://u:CANARY@one/shop", {"host": ["a", "b"]}, "a:5432,b:5432/shop"),
        ("postgresql://u:CANARY@[::1]:5/shop", {}, "[::1]:5/shop"),
        ("postgresql://u:CANARY@[::1]/sh%20op", {}, "[::1]:5432/sh op"),
        ("postgresql://", {}, "the default host:5432/"),
        ("postgresql://u:CANARY/x@db/shop", {}, "an address that cannot be read"),
        ("postgresql://u:CANARY?x@db/shop", {}, "an address that cannot be read"),
        ("postgresql://u:CANARY#x@db/shop", {}, "an address that cannot be read"),
        ("postgresql://u:CAN@ARY@db/shop", {}, "an address that cannot be read"),
        ("postgresql://u:CANARY", {}, "an address that cannot be read"),
        ("postgresql://[u:CANARY", {}, "an address that cannot be read"),
    ],
)
def test_an_address_has_no_secrets(url: str, arguments: dict[str, Any], shown: str) -> None:
    assert address(url, arguments) == shown


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(-2, "CANARY"), "the host name is not known; check the host in the database URL"),
        (ConnectionRefusedError(111, "CANARY"), "nothing listens there; check host and port"),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 111] CANARY"), "nothing listens there"),
        (FileNotFoundError(2, "CANARY"), "there is no such socket; check the folder in the database URL"),
        (TimeoutError("CANARY"), "no answer; check host and port, and the firewalls on the way"),
        (ConnectionError("PostgreSQL server at CANARY rejected SSL upgrade"), "no encrypted connection"),
        (asyncpg.InvalidCatalogNameError("CANARY"), "there is no database of that name there"),
        (asyncpg.ConnectionDoesNotExistError("CANARY"), "it closed the connection at once"),
        (
            asyncpg.exceptions.ClientConfigurationError("CANARY"),
            "an option of the database URL cannot be used",
        ),
        (OSError(5, "CANARY"), "OSError"),
    ],
)
def test_an_error_says_what_to_do_and_not_what_it_quotes(error: BaseException, says: str) -> None:
    text = str(obstacle(error))
    assert text.startswith(says)
    assert type(error).__name__ in text
    assert "CANARY" not in text


PORT = "the port after its host must be a number from 1 to 65535"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:CANARY@db:nonsense/shop", PORT),
        ("postgresql://u:CANARY@db:99999/shop", PORT),
        ("postgresql://u:CANARY@db:0/shop", PORT),
        ("postgresql://u:CANARY@db:-1/shop", PORT),
        ("postgresql://u:CANARY@one:1,two:x/shop", PORT),
        ("postgresql://u:CANARY/x@db/shop", PORT),
        ("postgresql://u:CANARY", PORT),
        ("postgresql://u:CAN@ARY@db/shop", "it has more than one @"),
        ("postgresql://u:CANARY@[::1/shop", "its host or its options cannot be read"),
        ("postgresql://u:CANARY@db/shop?sslmode", "its host or its options cannot be read"),
        ("mysql://u:CANARY@db/shop", "it must begin with postgresql://"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_is_wrong_and_shows_nothing(url: str, says: str) -> None:
    found = flaw(url)
    assert found is not None
    assert found.startswith(says)
    assert "CANARY" not in found


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgres://u:p%40%2F@db:6432/shop?sslmode=require&application_name=a@b",
        "postgresql://u:p@one:1,two,three:3/shop",
        "postgresql://u:p@[::1]:3/shop",
        "postgresql://u@/shop?host=/run/pg",
        "postgresql://%2Frun%2Fpg/shop",
        "postgresql://db:/shop",
    ],
)
def test_a_url_that_can_be_used_has_no_flaw(url: str) -> None:
    assert flaw(url) is None


def test_what_never_will_be_is_told_from_what_may_be_later() -> None:
    assert isinstance(refusal(OverflowError("port must be 0-65535"), ""), ConfigError)
    assert isinstance(refusal(TimeoutError(), " at db:5432/shop"), StorageUnavailable)
    assert "at db:5432/shop: no answer" in str(refusal(TimeoutError(), " at db:5432/shop"))


def test_a_relay_s_sessions_keep_their_name() -> None:
    """A frozen one is found by it."""
    with pytest.raises(
        ConfigError, match=r"application_name among its server_settings.*'outbox:shop\.orders_outbox'"
    ):
        Sessions(
            "postgresql://db/shop",
            name="outbox:shop.orders_outbox",
            size=1,
            timeout=1.0,
            connect={"server_settings": {"application_name": "mine"}},
        )


@pytest.mark.parametrize("statement", ["claim", "claim_keys"])
def test_a_statement_names_its_table_where_the_server_s_view_of_it_is_not_cut_off(statement: str) -> None:
    table = TableName("s" * 63, "t" * 48)
    assert table.quoted in query(statement, table).encode()[:1000].decode()

"""An address is shown without secrets, and an error with what to do about it."""

from __future__ import annotations

import socket
from typing import Any

import asyncpg
import pytest

from outbox_core.stores.postgres.connecting import address, obstacle


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
        (OSError(5, "CANARY"), "OSError"),
    ],
)
def test_an_error_says_what_to_do_and_not_what_it_quotes(error: BaseException, says: str) -> None:
    text = obstacle(error)
    assert text.startswith(says)
    assert type(error).__name__ in text
    assert "CANARY" not in text

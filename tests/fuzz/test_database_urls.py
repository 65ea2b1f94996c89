"""Addresses of databases: what is written in one is read, or refused without a word of its password."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.cli.connection import connect
from outbox_core.config import masked_database_url
from outbox_core.errors import ConfigError, OutboxError
from outbox_core.relay import Relay
from outbox_core.stores.postgres.connecting import address, flaw
from tests.fuzz.hostile import SECRET, assert_secretive, fuzzed, spoilt, texts

GOOD = (
    f"postgresql://user:{SECRET}@host:5432/shop",
    f"postgres://user:{SECRET}@a:1,b:2/shop?sslmode=verify-full&application_name=x",
    f"postgresql://user:{SECRET}@[::1]:5432/shop",
    f"postgresql:///shop?host=/run/postgresql&user=ada&password={SECRET}",
    "postgresql://",
)
_PASSWORD = re.compile(rf"://[^/?#]*:[^/?#]*{SECRET}.*@|[?&]password=[^&#]*{SECRET}", re.DOTALL)
"""The secret is still where a password stands; elsewhere nobody can tell it from a host or the name of a database."""
OPTIONS = (
    "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "ssl_min_protocol_version", "user",
    "database", "dbname", "port", "password", "passfile", "options", "target_session_attrs", "gsslib", "krbsrvname",
    "service", "servicefile", "application_name", "connect_timeout", "x",
)  # fmt: skip


@fuzzed
@given(st.one_of(texts, spoilt(GOOD)))
@example(f"postgresql://user:{SECRET}@host:{'9' * 5000}/shop")
@example(f"postgresql://user:{SECRET}@host\u2100/shop")
@example(f"postgresql://user:{SECRET}@[host/shop")
@example(f"postgresql://user:{SECRET}/shop")
@example(f"postgresql://user:a@{SECRET}@host/shop")
@example(f"postgresql://user:a#{SECRET}@host/shop")
@example(f"postgresql://user:a?{SECRET}@host/shop")
def test_any_text_is_read_or_refused_without_its_password(text: str) -> None:
    wrong = flaw(text)
    if _PASSWORD.search(text) is None:
        return
    for shown in (wrong, masked_database_url(text), address(text, {})):
        assert shown != ""
        assert_secretive(shown)
    try:
        relay = Relay(text, table="shop.orders_outbox", dispatcher=_deliver)
        assert_secretive(repr(relay))
        if wrong is not None:
            asyncio.run(relay.run_once())
    except ConfigError as refused:
        assert_secretive(refused)
    else:
        assert wrong is None


@fuzzed
@given(
    st.lists(st.tuples(st.sampled_from(OPTIONS), texts), max_size=3),
    spoilt("shop"),
)
@example([("port", "9" * 5000)], "shop")
@example([("sslmode", "verify-full"), ("sslrootcert", "/nowhere")], "shop")
@example([("host", "a\0b")], "shop")
def test_whatever_the_driver_makes_of_it_the_error_is_the_librarys(
    options: list[tuple[str, str]], name: str
) -> None:
    query = "&".join(f"{option}={value}" for option, value in options)
    url = f"postgresql://ada:{SECRET}@127.0.0.1:1/{name}{'?' if query else ''}{query}"
    if "host=" in query:
        return  # nothing but this machine is asked

    async def attempt() -> None:
        async with connect(url):
            raise AssertionError("nothing listens there")

    with pytest.raises(OutboxError) as raised:
        asyncio.run(attempt())
    assert_secretive(str(raised.value))


async def _deliver(_message: object) -> None:
    """A dispatcher that is never asked."""

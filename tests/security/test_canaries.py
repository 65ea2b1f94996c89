"""A password in an address is in nothing that is said, logged or shown, however the connection fails."""

from __future__ import annotations

import asyncio
import io
import logging

import pytest

from outbox_core.config import Settings
from outbox_core.dispatcher import load_dispatcher
from outbox_core.errors import OutboxError
from outbox_core.observer import Event
from outbox_core.observers.json_lines import JsonLinesObserver
from outbox_core.relay import Relay
from outbox_core.testing.contracts.samples import sample
from tests.integration.cli.command import invoke

SECRET = "CANARY-7f3a"
SECONDS = 60.0
TABLE = ("-t", "shop.orders_outbox")
DATABASES = (
    f"postgresql://ada:{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ada:{SECRET}@127.0.0.1:1/shop?sslmode=verify-full&sslrootcert=/nowhere",
    f"postgresql://127.0.0.1:1/shop?user=ada&password={SECRET}",
    f"postgresql://ada:{SECRET}@no-such-host.invalid/shop",
    f"postgresql://ada:{SECRET}@host:port/shop",
    f"postgresql://ada:{SECRET}/shop",
    f"postgresql://ada:x@{SECRET}@127.0.0.1:1/shop",
    f"postgresql+asyncpg://ada:{SECRET}@127.0.0.1:1/shop",
    f"postgres:ada:{SECRET}@127.0.0.1:1/shop",
    f"mysql://ada:{SECRET}@127.0.0.1:1/shop",
)
BROKERS = (
    f"kafka://ada:{SECRET}@127.0.0.1:1",
    f"kafka+ssl://ada:{SECRET}@127.0.0.1:1?sasl_mechanism=SCRAM-SHA-256",
    f"nats://ada:{SECRET}@127.0.0.1:1",
    f"nats://{SECRET}@127.0.0.1:1",
    f"nats+tls://ada:{SECRET}@127.0.0.1:1",
    f"amqp://ada:{SECRET}@127.0.0.1:1/shop",
    f"amqps://ada:{SECRET}@127.0.0.1:1",
)
COMMANDS = (
    ("status", *TABLE),
    ("pending", *TABLE),
    ("dead", "list", *TABLE),
    ("enqueue", "a.b", *TABLE),
    ("schema", "verify", *TABLE),
    ("clean", *TABLE, "--yes", "--reason", "x"),
    ("doctor", *TABLE),
    ("relay", *TABLE, "--to", "nats://127.0.0.1:1", "--once"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_no_command_repeats_the_password_of_a_database_not_even_to_debug(command: tuple[str, ...]) -> None:
    traced = 0
    for database in DATABASES:
        for how in (("--database", database), ()):
            result = invoke(*command, *how, "--debug", database=None if how else database)
            assert result.code != 0, database
            assert SECRET not in result.out + result.err, database
            traced += "Traceback" in result.err
    assert traced > 0 or command[0] == "doctor"


@pytest.mark.parametrize("url", BROKERS, ids=lambda url: url.partition(":")[0])
def test_no_command_repeats_the_password_of_a_broker_not_even_to_debug(url: str) -> None:
    nowhere = "postgresql://127.0.0.1:1/shop"
    for wrong in (url, f"{url}@", f"x{url}", url.replace("://", ":/"), f"{url}&nonsense"):
        for command in (("relay", *TABLE, "--once"), ("doctor", *TABLE)):
            for how in ({"env": {"OUTBOX_RELAY_TO": wrong}}, {}):
                args = command if how else (*command, "--to", wrong)
                result = invoke(*args, "--debug", database=nowhere, **how)  # type: ignore[arg-type]
                assert result.code != 0
                assert SECRET not in result.out + result.err, wrong


@pytest.mark.asyncio
@pytest.mark.parametrize("url", BROKERS, ids=lambda url: url.partition(":")[0])
async def test_a_broker_that_is_not_there_is_told_without_its_password(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dispatcher = load_dispatcher(url)
    told = [f"{dispatcher!r} {dispatcher} {getattr(dispatcher, 'name', '')}"]
    with pytest.raises(OutboxError) as raised:
        async with asyncio.timeout(SECONDS), dispatcher:  # type: ignore[attr-defined]
            await dispatcher.dispatch(sample("a.b.c.v1", b"{}"))
    error: BaseException | None = raised.value
    while error is not None:
        told.append(f"{error} {error!r}")
        error = error.__cause__ or error.__context__
    told += [f"{record.getMessage()} {record.exc_text} {vars(record)}" for record in caplog.records]
    assert told[0].strip()
    for text in told:
        assert SECRET not in text


@pytest.mark.asyncio
async def test_a_relay_that_cannot_start_tells_nobody(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for database in DATABASES[:4]:
        settings = Settings.from_env(
            {"OUTBOX_DATABASE_URL": database, "OUTBOX_RELAY_TABLES": TABLE[1], "OUTBOX_RELAY_TO": BROKERS[0]}
        )
        lines = io.StringIO()
        relay = settings.make_relay(observers=[JsonLinesObserver(lines, only=[Event])])
        assert isinstance(relay, Relay)
        with pytest.raises(OutboxError) as raised:
            await relay.start()
        shown = capsys.readouterr()
        printed = shown.out + shown.err + lines.getvalue()
        for text in (f"{settings!r} {relay!r}", str(raised.value), caplog.text, printed):
            assert SECRET not in text

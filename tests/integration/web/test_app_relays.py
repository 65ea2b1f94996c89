"""Relays inside an application: they start and stop with it, and never die unnoticed."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from outbox_core import Outbox, Relay, schema
from outbox_core.config import Settings
from outbox_core.errors import ConfigError, InvalidSettings, OutboxError, SchemaMissing
from outbox_core.integrations.app_relays import AppRelays
from outbox_core.store import Claim, Leased
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from outbox_core.testing import RecordingDispatcher
from tests.integration.web.shop import TABLE, Shop, placed
from tests.kit.settings import QUICK_WEB
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


def memory_relay(dispatcher: RecordingDispatcher, store: MemoryStore | None = None) -> Relay:
    kept = store or MemoryStore()
    return Relay(lambda: kept, table="outbox", dispatcher=dispatcher, **QUICK_WEB)


def environment(shop: Shop, **more: str) -> dict[str, str]:
    return {"OUTBOX_DATABASE_URL": shop.dsn, "OUTBOX_RELAY_TABLES": TABLE} | more


async def test_delivers_while_the_application_runs(shop: Shop, dispatcher: RecordingDispatcher) -> None:
    relays = AppRelays(shop.relay(dispatcher))
    assert (relays.relays, relays.health().ready, relays.health().live) == ((), False, True)
    async with relays:
        assert relays.health().ready
        assert relays.health().reasons == ()
        async with shop.connection.transaction():
            await shop.outbox.enqueue(shop.connection, placed(1))
        await dispatcher.wait_for(1)
    assert relays.relays == ()
    assert relays.health().reasons == ("the application's relays are not started",)
    async with relays:
        assert relays.health().ready


@pytest.mark.parametrize("made", ["relay", "sequence", "function", "coroutine"])
async def test_takes_relays_and_what_makes_them(made: str) -> None:
    relay = memory_relay(RecordingDispatcher())

    async def later() -> list[Relay]:
        return [relay]

    source: Any = {"relay": relay, "sequence": [relay], "function": lambda: relay, "coroutine": later}[made]
    async with AppRelays(source) as relays:
        assert relays.relays == (relay,)
        assert relay.state == "running"
    assert relay.state == "stopped"


async def test_no_relay_in_this_process_is_healthy() -> None:
    async with AppRelays(None) as relays:
        health = relays.health()
        assert (health.live, health.ready, health.lagging, health.relays) == (True, True, False, ())


async def test_what_the_environment_asks_for(shop: Shop, dispatcher: RecordingDispatcher) -> None:
    environ = environment(shop, OUTBOX_RELAY_POLL_INTERVAL="100ms", OUTBOX_RELAY_SINGLE_ACTIVE="false")
    relays = AppRelays(lambda: Settings.from_env(environ), dispatcher=dispatcher)
    async with relays:
        (relay,) = relays.relays
        assert [str(table) for table in relay.tables] == [TABLE]
        assert (relay.settings.poll_interval, relay.settings.single_active) == (0.1, False)
        async with shop.connection.transaction():
            await shop.outbox.enqueue(shop.connection, placed(1))
        await dispatcher.wait_for(1)


async def test_the_environment_may_ask_for_none(
    shop: Shop, dispatcher: RecordingDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    switched_off = environment(shop, OUTBOX_RELAY_ENABLED="false", OUTBOX_RELAY_TO="nats://host")
    for environ in (switched_off, switched_off | {"OUTBOX_RELAY_TABLES": ""}):
        async with AppRelays(Settings.from_env(environ), dispatcher=dispatcher) as relays:
            assert (relays.relays, relays.health().ready) == ((), True)
    assert caplog.records == []
    settings = Settings.from_env(environment(shop, OUTBOX_RELAY_TABLES=""))
    async with AppRelays(settings) as relays:
        assert (relays.relays, relays.health().ready) == ((), True)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        (
            "no outbox relay runs in this process: OUTBOX_RELAY_TABLES names no table"
            " (OUTBOX_RELAY_ENABLED=false says that this is meant)"
        ),
    )


async def test_a_dispatcher_without_a_table_keeps_the_application_from_starting() -> None:
    with pytest.raises(
        InvalidSettings, match="the dispatcher says where messages go and OUTBOX_RELAY_TABLES names no"
    ):
        await AppRelays(Settings.from_env({}), dispatcher=RecordingDispatcher()).start()


@pytest.mark.parametrize("given", [None, RecordingDispatcher()])
async def test_a_destination_without_a_table_keeps_the_application_from_starting(
    given: RecordingDispatcher | None,
) -> None:
    environ = {"OUTBOX_RELAY_TO": "nats://host"}
    with pytest.raises(InvalidSettings, match="OUTBOX_RELAY_TABLES names no table") as raised:
        await AppRelays(lambda: Settings.from_env(environ), dispatcher=given).start()
    assert "name the tables, or set OUTBOX_RELAY_ENABLED=false" in str(raised.value)
    async with AppRelays(Settings.from_env(environ), on_start_error="degrade") as relays:
        assert not relays.health().ready
        assert "InvalidSettings (CONFIG.SETTINGS)" in relays.health().reasons[0]


async def test_a_function_that_forgot_to_return_its_relay_is_no_wish_for_none() -> None:
    async def later() -> None:
        memory_relay(RecordingDispatcher())

    for forgetful in (lambda: None, later):
        with pytest.raises(
            ConfigError, match="returned None; return a Relay, several or Settings, or \\(\\)"
        ):
            await AppRelays(forgetful).start()  # type: ignore[arg-type]
    async with AppRelays(lambda: ()) as relays:
        assert (relays.relays, relays.health().ready) == ((), True)


async def test_a_bad_environment_keeps_the_application_from_starting(shop: Shop) -> None:
    environ = environment(shop, OUTBOX_RELAY_LOCK_TTL="soon")
    with pytest.raises(InvalidSettings, match="OUTBOX_RELAY_LOCK_TTL=soon: expected a duration") as raised:
        await AppRelays(lambda: Settings.from_env(environ)).start()
    assert raised.value.__notes__ == [
        "This kept the application from starting: its outbox relay could not start."
    ]
    with pytest.raises(InvalidSettings, match="OUTBOX_RELAY_TO is not set"):
        await AppRelays(Settings.from_env(environment(shop))).start()


async def test_what_cannot_start_keeps_the_others_from_running(shop: Shop) -> None:
    good = memory_relay(RecordingDispatcher())
    bad = Relay(shop.dsn, table="nowhere_outbox", dispatcher=RecordingDispatcher())
    relays = AppRelays([good, bad])
    with pytest.raises(SchemaMissing, match="nowhere_outbox"):
        await relays.start()
    assert (good.state, bad.state, relays.relays) == ("stopped", "stopped", ())
    await relays.stop()


async def test_degraded_it_starts_says_so_and_recovers(
    shop: Shop, dispatcher: RecordingDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Relay(shop.dsn, table="late_outbox", dispatcher=dispatcher, **QUICK_WEB)
    async with AppRelays(relay, on_start_error="degrade") as relays:
        health = relays.health()
        assert (health.live, health.ready) == (True, False)
        assert health.reasons == (
            "the relay could not start: SchemaMissing (STORAGE.SCHEMA_MISSING); the log says more",
        )
        (record,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
        assert "runs without its outbox relay" in record.getMessage()
        assert "late_outbox" in record.getMessage()
        await schema.create(shop.connection, "late_outbox")
        await until(lambda: relays.health().ready)
        assert relay.state == "running"
    assert relay.state == "stopped"


async def test_degraded_by_whatever_makes_the_relay(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Relay:
        raise RuntimeError("secret://user:pw@host")

    async with AppRelays(broken, on_start_error="degrade") as relays:
        health = relays.health()
        assert health.reasons == ("the relay could not start: RuntimeError; the log says more",)
        assert not health.ready
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


async def test_a_relay_that_dies_is_seen_and_told(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryStore):
        async def claim(self, table: TableName, claim: Claim) -> Leased:
            raise ZeroDivisionError

    relays = AppRelays([memory_relay(RecordingDispatcher()), memory_relay(RecordingDispatcher(), Failing())])
    async with relays:
        await until(lambda: not relays.health().live)
        health = relays.health()
        assert not health.ready
        assert health.reasons == ("the relay ended with ZeroDivisionError",)
        assert [each.live for each in health.relays] == [True, False]
    assert "CRITICAL" in [record.levelname for record in caplog.records]


async def test_all_stop_at_once_by_one_deadline(shop: Shop) -> None:
    dispatchers = [RecordingDispatcher(), RecordingDispatcher(), RecordingDispatcher()]
    stores = [MemoryStore() for _ in dispatchers]
    relays = AppRelays([memory_relay(*pair) for pair in zip(dispatchers, stores, strict=True)], grace=0.5)
    await relays.start()
    for dispatcher, store in zip(dispatchers, stores, strict=True):
        dispatcher.freeze()
        async with store.transaction() as tx:
            await Outbox("outbox").enqueue(tx, placed(1))
    await until(lambda: all(dispatcher.received for dispatcher in dispatchers))
    began = time.monotonic()
    stopping = asyncio.create_task(relays.stop())
    await until(lambda: "stopping" in str(relays.health().reasons))
    assert relays.health().live
    assert not relays.health().ready
    await stopping
    assert 0.4 <= time.monotonic() - began < 2.5


async def test_the_grace_of_the_settings_holds(shop: Shop, dispatcher: RecordingDispatcher) -> None:
    settings = Settings.from_env(environment(shop, OUTBOX_RELAY_GRACE="300ms"))
    relays = AppRelays(settings, dispatcher=dispatcher)
    await relays.start()
    dispatcher.freeze()
    async with shop.connection.transaction():
        await shop.outbox.enqueue(shop.connection, placed(1))
    await until(lambda: bool(dispatcher.received))
    began = time.monotonic()
    await relays.stop()
    assert time.monotonic() - began < 3


async def test_starting_twice_is_refused_and_stopping_twice_is_not() -> None:
    relays = AppRelays(memory_relay(RecordingDispatcher()))
    await relays.stop()
    async with relays:
        with pytest.raises(ConfigError, match="run already"):
            await relays.start()
        assert relays.health().ready
    await relays.stop()


async def test_a_cancelled_start_leaves_nothing_running(shop: Shop) -> None:
    class Slow(MemoryStore):
        async def open(self, tables: object) -> None:
            await asyncio.sleep(30)

    relay = memory_relay(RecordingDispatcher(), Slow())
    relays = AppRelays(relay, on_start_error="degrade")
    starting = asyncio.create_task(relays.start())
    await until(lambda: relay.state == "starting")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert relay.state == "stopped"


@pytest.mark.parametrize("source", ["postgresql://", 7, ["x"]])
async def test_what_is_no_relay_is_refused(source: object) -> None:
    with pytest.raises(ConfigError, match="expected a Relay"):
        await AppRelays(source).start()  # type: ignore[arg-type]


async def test_mistaken_arguments_are_refused(dispatcher: RecordingDispatcher) -> None:
    with pytest.raises(OutboxError, match="'fail' or 'degrade', got 'ignore'"):
        AppRelays(None, on_start_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give them to the Relay itself"):
        await AppRelays(memory_relay(dispatcher), dispatcher=dispatcher).start()

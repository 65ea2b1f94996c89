"""Settings from the environment: read, checked together, and written back."""

from __future__ import annotations

import logging
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.cleaner import CleanerSettings
from outbox_core.config import (
    VARIABLES,
    LogSettings,
    MetricsSettings,
    Settings,
    format_duration,
    masked_database_url,
    parse_duration,
    unknown_variables,
)
from outbox_core.errors import ConfigError, InvalidSettings
from outbox_core.message import DispatchedMessage
from outbox_core.relay.settings import RelaySettings
from outbox_core.table import TableName

URL = "postgresql://ada:canary@db/shop"


async def publish(message: DispatchedMessage) -> None:
    """Never called."""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("1s", 1), ("1m", 60), ("168h", 604800), ("7d", 604800), ("1h30m", 5400), ("0.5s", 0.5),
     (" 1M ", 60), ("0", 0), ("0s", 0)],
)  # fmt: skip
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1 s", "-1s", "1y", "1e3s", "nan", "1s2", "٣s", "1,5s", "99999d"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "200ms"), (1, "1s"), (60, "1m"), (604800, "168h"), (90.5, "1m30s500ms"), (0, "0")],
)
def test_durations_are_written(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 366 * 86_400_000))
def test_a_written_duration_is_read_as_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


def test_an_empty_environment_is_every_default() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings().relay == RelaySettings()
    assert Settings().cleaner == CleanerSettings()


def test_every_variable_has_its_place() -> None:
    given = {
        "OUTBOX_DATABASE_URL": URL,
        "OUTBOX_RELAY_ENABLED": "no",
        "OUTBOX_RELAY_TABLES": "orders_outbox, billing.outbox",
        "OUTBOX_RELAY_TO": "kafka://broker:9092",
        "OUTBOX_RELAY_ON_PUBLISHED": "delete",
        "OUTBOX_RELAY_ON_DEAD": "skip",
        "OUTBOX_RELAY_SINGLE_ACTIVE": "false",
        "OUTBOX_RELAY_POLL_INTERVAL": "200ms",
        "OUTBOX_RELAY_BATCH_SIZE": "7",
        "OUTBOX_RELAY_BATCH_BYTES": "1000",
        "OUTBOX_RELAY_CONCURRENCY": "3",
        "OUTBOX_RELAY_LOCK_TTL": "2m",
        "OUTBOX_RELAY_MAX_ATTEMPTS": "4",
        "OUTBOX_RELAY_DISPATCH_TIMEOUT": "10s",
        "OUTBOX_RELAY_DATABASE_TIMEOUT": "3s",
        "OUTBOX_RELAY_BACKOFF_BASE": "2s",
        "OUTBOX_RELAY_BACKOFF_CAP": "5m",
        "OUTBOX_RELAY_BACKOFF_JITTER": "0",
        "OUTBOX_RELAY_TAKEOVER": "9s",
        "OUTBOX_RELAY_GRACE": "5s",
        "OUTBOX_LAST_ERROR_MAX_BYTES": "100",
        "OUTBOX_CLEANER_ENABLED": "0",
        "OUTBOX_CLEANER_TABLES": "orders_outbox",
        "OUTBOX_CLEANER_INTERVAL": "30s",
        "OUTBOX_CLEANER_RETENTION": "24h",
        "OUTBOX_CLEANER_DEAD_RETENTION": "720h",
        "PROMETHEUS_METRICS_ENABLED": "on",
        "PROMETHEUS_METRICS_PATH": "/metrics",
        "OUTBOX_METRICS_HOST": "192.0.2.1",
        "OUTBOX_METRICS_PORT": "8000",
        "OUTBOX_LOG_FORMAT": "json",
        "OUTBOX_LOG_LEVEL": "debug",
        "OUTBOX_LOG_TENANTS": "hash",
        "OUTBOX_LOG_TENANTS_SECRET": "canary",
    }
    assert set(given) == {variable.name for variable in VARIABLES}
    settings = Settings.from_env(given)
    assert settings.database_url == URL
    assert settings.relay_tables == (TableName("public", "orders_outbox"), TableName("billing", "outbox"))
    assert settings.relay == RelaySettings(
        on_published="delete", on_dead="skip", single_active=False, poll_interval=0.2, batch_size=7, batch_bytes=1000,
        concurrency=3, lock_ttl=120, max_attempts=4, dispatch_timeout=10, database_timeout=3, backoff_base=2,
        backoff_cap=300, backoff_jitter=0, takeover=9, last_error_max_bytes=100,
    )  # fmt: skip
    assert settings.cleaner == CleanerSettings(
        enabled=False, interval=30, retention=86400, dead_retention=720 * 3600
    )
    assert settings.logs == LogSettings(format="json", level="debug", tenants="hash", tenants_secret="canary")
    assert settings.metrics.on
    assert (settings.relay_enabled, settings.relay_grace, settings.metrics.port) == (False, 5, 8000)
    assert Settings.from_env(settings.as_env(secrets=True)) == settings
    assert Settings.from_env({"OUTBOX_RELAY_ON_DEAD": "block"}).relay.on_dead == "block"


def test_every_setting_of_the_relay_has_a_variable() -> None:
    places = {variable.place for variable in VARIABLES}
    assert {f"relay.{field.name}" for field in fields(RelaySettings)} <= places


def test_the_defaults_are_written_back() -> None:
    assert Settings.from_env(Settings().as_env()) == Settings()
    assert Settings().as_env()["OUTBOX_CLEANER_RETENTION"] == "168h"
    assert Settings().as_env()["OUTBOX_CLEANER_DEAD_RETENTION"] == "0"


def test_an_empty_value_counts_as_not_set() -> None:
    assert Settings.from_env({variable.name: " " for variable in VARIABLES}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("OUTBOX_RELAY_LOCK_TTL", "60", "a duration such as 200ms, 1s, 1m, 1h30m or 168h, longer than 0"),
        ("OUTBOX_RELAY_POLL_INTERVAL", "0", "longer than 0"),
        ("OUTBOX_RELAY_TAKEOVER", "9999h", "8784h at most"),
        ("OUTBOX_RELAY_BATCH_SIZE", "0", "a whole number from 1 to 2147483647"),
        ("OUTBOX_RELAY_BATCH_SIZE", "ten", "a whole number from 1 to 2147483647"),
        ("OUTBOX_LAST_ERROR_MAX_BYTES", "63", "a whole number from 64 to"),
        ("OUTBOX_RELAY_SINGLE_ACTIVE", "maybe", "true or false (also yes, no, on, off, 1, 0)"),
        ("OUTBOX_RELAY_ON_PUBLISHED", "keep", "mark or delete"),
        ("OUTBOX_RELAY_TABLES", "Orders", "table names with commas"),
        ("OUTBOX_RELAY_TABLES", "a,a", "none twice"),
        ("OUTBOX_CLEANER_RETENTION", "0", "(to keep none, let the relay delete them: OUTBOX_RELAY_ON_PUB"),
        ("PROMETHEUS_METRICS_PATH", "metrics", "a path that begins with /"),
        ("OUTBOX_METRICS_PORT", "65536", "a whole number from 0 to 65535"),
        ("OUTBOX_LOG_FORMAT", "xml", "text or json"),
        ("OUTBOX_LOG_TENANTS", "yes", "off or hash or drop"),
    ],
)  # fmt: skip
def test_a_bad_value_names_variable_value_and_what_is_accepted(name: str, value: str, accepted: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        Settings.from_env({name: value})
    (problem,) = raised.value.problems
    assert problem.startswith(f"{name}={value}: expected ")
    assert accepted in problem
    assert str(raised.value) == f"a setting is wrong: {problem}"


def test_all_problems_are_in_one_error() -> None:
    with pytest.raises(InvalidSettings, match=r"^3 settings are wrong: ") as raised:
        Settings.from_env(
            {"OUTBOX_RELAY_BATCH_SIZE": "x", "OUTBOX_CLEANER_INTERVAL": "x", "OUTBOX_LOG_LEVEL": "x"}
        )
    assert len(raised.value.problems) == 3


def test_settings_that_contradict_each_other_are_named() -> None:
    with pytest.raises(InvalidSettings) as raised:
        Settings.from_env({"OUTBOX_RELAY_LOCK_TTL": "30s", "OUTBOX_RELAY_DISPATCH_TIMEOUT": "25s"})
    (problem,) = raised.value.problems
    assert problem.startswith(
        "OUTBOX_RELAY_LOCK_TTL=30s, OUTBOX_RELAY_DISPATCH_TIMEOUT=25s: lock_ttl=30 s is too short"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_DATABASE_URL", "mysql://ada:canary@db"),
        ("OUTBOX_DATABASE_URL", "canary"),
        ("OUTBOX_RELAY_TO", "kafka://ada:canary"),
        ("OUTBOX_RELAY_TO", "kafka://ada:canary@@db"),
    ],
)
def test_a_secret_is_in_no_message(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        Settings.from_env({name: value})
    assert "canary" not in str(raised.value)
    assert "***" in str(raised.value)


def test_a_database_url_that_cannot_be_used_says_why() -> None:
    with pytest.raises(InvalidSettings) as raised:
        Settings.from_env({"OUTBOX_DATABASE_URL": "postgresql://ada:canary@db:543x/shop"})
    assert "the port after its host must be a number from 1 to 65535" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_what_is_wrong_leaves_the_other_settings_as_they_are() -> None:
    settings, problems = Settings.read(
        {
            "OUTBOX_DATABASE_URL": URL,
            "OUTBOX_RELAY_TABLES": "shop.orders_outbox",
            "OUTBOX_RELAY_BATCH_SIZE": "many",
            "OUTBOX_RELAY_TAKEOVER": "20s",
            "OUTBOX_CLEANER_RETENTION": "0",
        }
    )
    assert [problem.variables for problem in problems] == [
        ("OUTBOX_RELAY_BATCH_SIZE",),
        ("OUTBOX_CLEANER_RETENTION",),
    ]
    assert (settings.database_url, str(settings.relay_tables[0])) == (URL, "shop.orders_outbox")
    assert (settings.relay.takeover, settings.relay.batch_size) == (20.0, 100)
    assert settings.cleaner == Settings().cleaner


def test_a_secret_is_in_no_repr() -> None:
    settings = Settings.from_env(
        {
            "OUTBOX_DATABASE_URL": URL + "?password=canary",
            "OUTBOX_RELAY_TO": "nats://canary@host?stream=canary",
            "OUTBOX_LOG_TENANTS_SECRET": "canary",
        }
    )
    assert "canary" not in repr(settings) + repr(settings.logs) + str(settings.as_env())
    assert "postgresql://ada:***@db/shop?password=***" in repr(settings)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://db/shop", "postgresql://db/shop"),
        ("postgresql://ada@db:5432/shop", "postgresql://ada@db:5432/shop"),
        ("postgres://ada:canary@a,b/shop?sslmode=require", "postgres://ada:***@a,b/shop?sslmode=***"),
        ("postgresql://ada:can@ary@db/shop", "***"),
        ("postgresql://ada:canary#@db/shop", "***"),
        ("postgresql://ada:canary/@db", "***"),
        ("postgresql://[canary", "***"),
        ("postgresql://ada:canary", "***"),
        ("postgresql://ada:canary?x@db", "***"),
        ("host=db password=canary", "***"),
    ],
)
def test_database_urls_are_masked(url: str, masked: str) -> None:
    assert masked_database_url(url) == masked


def test_unknown_names_are_warned_about_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    environ = {
        "OUTBOX_RELAY_BATCHSIZE": "5",
        "OUTBOX_TEST_REQUIRE": "all",
        "OUTBOX_XYZZY": "1",
        "PATH": "/bin",
    }
    with caplog.at_level(logging.WARNING, "outbox_core.config"):
        assert Settings.from_env(environ) == Settings()
    assert [record.getMessage() for record in caplog.records] == [
        "the variable OUTBOX_RELAY_BATCHSIZE is not known and has no effect; did you mean OUTBOX_RELAY_BATCH_SIZE?",
        "the variable OUTBOX_XYZZY is not known and has no effect",
    ]
    assert [found.nearest for found in unknown_variables(environ)] == ["OUTBOX_RELAY_BATCH_SIZE", None]


def test_from_env_reads_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_RELAY_BATCH_SIZE", "12")
    assert Settings.from_env().relay.batch_size == 12


def test_a_relay_is_made_of_the_settings() -> None:
    settings = Settings.from_env(
        {"OUTBOX_DATABASE_URL": URL, "OUTBOX_RELAY_TABLES": "a,b", "OUTBOX_RELAY_MAX_ATTEMPTS": "3"}
    )
    relay = settings.make_relay(publish)
    assert relay is not None
    assert relay.settings.max_attempts == 3
    assert relay.tables == settings.relay_tables


@pytest.mark.parametrize("environ", [{}, {"OUTBOX_RELAY_TABLES": "a", "OUTBOX_RELAY_ENABLED": "false"}])
def test_no_relay_is_made_without_tables_or_when_it_is_disabled(environ: dict[str, str]) -> None:
    assert Settings.from_env(environ).make_relay() is None


def test_a_relay_without_database_or_destination_says_both() -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.from_env({"OUTBOX_RELAY_TABLES": "a"}).make_relay()
    assert "OUTBOX_DATABASE_URL is not set: it must be a URL that begins with postgresql://" in str(
        raised.value
    )
    assert "OUTBOX_RELAY_TO is not set: it must be a dispatcher URL" in str(raised.value)


@pytest.mark.parametrize(
    ("environ", "apart"),
    [
        ({"OUTBOX_RELAY_TABLES": "a,b"}, ""),
        ({"OUTBOX_RELAY_TABLES": "a,b", "OUTBOX_CLEANER_TABLES": "b,a"}, ""),
        ({"OUTBOX_RELAY_TABLES": "a,b", "OUTBOX_CLEANER_TABLES": "a,c"}, "a,c"),
        ({"OUTBOX_RELAY_TABLES": "a,b", "OUTBOX_RELAY_ENABLED": "no"}, "a,b"),
        ({"OUTBOX_RELAY_TABLES": "a,b", "OUTBOX_RELAY_ENABLED": "no", "OUTBOX_CLEANER_ENABLED": "no"}, ""),
    ],
)
def test_which_tables_need_a_cleaner_of_their_own(environ: dict[str, str], apart: str) -> None:
    found = Settings.from_env(environ).cleaned_apart
    assert ",".join(table.name for table in found) == apart


@pytest.mark.parametrize(
    ("settings", "on"),
    [
        (MetricsSettings(), False),
        (MetricsSettings(port=0), True),
        (MetricsSettings(enabled=True), True),
        (MetricsSettings(enabled=False, port=1), False),
    ],
)
def test_when_metrics_are_served(settings: MetricsSettings, on: bool) -> None:
    assert settings.on is on

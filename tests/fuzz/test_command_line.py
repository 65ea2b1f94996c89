"""The command line: whatever is typed, the command knows what was wrong with it, and says so without a traceback."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import click
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.cli.failures import ExitCode
from outbox_core.cli.parameters import DURATION, MOMENT, TABLE, UUID_VALUE
from outbox_core.cli.root import root
from tests.fuzz.hostile import SECRET, assert_brief, assert_secretive, fuzzed, spoilt, texts

NOWHERE = f"postgresql://ada:{SECRET}@127.0.0.1:1/nothing"
TIMES = (
    "2026-01-31T08:00:00Z",
    "2026-01-31",
    "2h",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "24:00",
)
UUIDS = (
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "urn:uuid:" + "0" * 32,
    "{" + "0" * 32 + "}",
    "0x" + "0" * 30,
)
COMMANDS = (
    ("status", "-t", "{}"),
    ("pending", "-t", "orders", "--limit", "{}"),
    ("dead", "list", "-t", "orders", "--since", "{}", "--until", "{}"),
    ("dead", "list", "-t", "orders", "--topic", "{}", "--code", "{}"),
    ("dead", "show", "{}", "-t", "orders"),
    ("dead", "replay", "-t", "orders", "--tenant", "{}", "--reason", "{}", "--yes"),
    ("dead", "discard", "-t", "orders", "--event-id", "{}", "--reason", "x", "--yes"),
    ("clean", "-t", "orders", "--retention", "{}", "--yes"),
    ("enqueue", "{}", "{}", "-t", "orders"),
    ("enqueue", "a.b", "1", "-t", "orders", "--header", "{}", "--key", "{}", "--delay", "{}"),
    ("schema", "roles", "-t", "orders", "--viewer", "{}"),
    ("schema", "print", "-t", "orders", "--from", "{}"),
    ("relay", "-t", "orders", "--to", "{}", "--once", "--lock-ttl", "{}"),
    ("doctor", "-t", "{}", "--long", "{}"),
    ("{}", "{}"),
)
typed = st.one_of(
    texts.filter(lambda text: "\0" not in text),
    spoilt([*TIMES, *UUIDS, "shop.orders", "100", "NAME=VALUE", '{"a": 1}', "1h30m", "kafka://127.0.0.1:1"]),
)


@fuzzed
@given(st.one_of(texts, spoilt([*TIMES, *UUIDS, "1h30m", "shop.orders"])))
@example("0001-01-01T00:00:00+23:59")
@example("9" * 5000 + "h")
def test_a_value_is_read_or_refused_as_a_usage_error(text: str) -> None:
    for kind in (MOMENT, UUID_VALUE, DURATION, TABLE):
        try:
            value = kind.convert(text, None, None)
        except click.UsageError as refused:
            assert_brief(refused, 1000)
            continue
        assert value is not None
        if isinstance(value, datetime):
            value.astimezone(UTC)


@fuzzed
@given(st.sampled_from(COMMANDS), st.lists(typed, min_size=3, max_size=3))
@example(COMMANDS[2], ["0001-01-01T00:00:00+23:59", "2h", ""])
@example(COMMANDS[8], ["a.b", "[" * 100_000, ""])
@example(COMMANDS[9], ["\udcff=\udcff", "\udcff", "1s"])
@example(COMMANDS[11], ["9" * 5000, "", ""])
def test_a_command_fails_in_a_way_it_knows(command: tuple[str, ...], words: list[str]) -> None:
    rest = iter(words)
    args = [next(rest) if part == "{}" else part for part in command]
    if any(word in ("demo", "dev", "relay") for word in words):
        return
    done = CliRunner(env=_environment()).invoke(root, args, prog_name="outbox")

    assert done.exit_code in set(ExitCode) - {ExitCode.UNEXPECTED}, (args, done.stderr, done.exception)
    assert_secretive(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr


def _environment() -> dict[str, str | None]:
    """Nothing of the caller's, and a database that is not there."""
    cleared = dict.fromkeys(name for name in os.environ if name.startswith(("OUTBOX_", "PROMETHEUS_")))
    return {**cleared, "OUTBOX_DATABASE_URL": NOWHERE}

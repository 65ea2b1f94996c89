"""The environment: what it says is read, or told with the variable's name and without its secrets."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.config import VARIABLES, Settings, format_duration, parse_duration
from outbox_core.errors import InvalidSettings
from tests.fuzz.hostile import SECRET, assert_brief, assert_secretive, fuzzed, spoilt, texts

DURATIONS = ("200ms", "1s", "1h30m", "168h", "0", "1.5d", "1d" * 50)
GOOD = (
    *DURATIONS, "true", "100", "shop.orders_outbox,public.x", "mark", "/metrics", "127.0.0.1",
    f"postgresql://ada:{SECRET}@db/shop", f"nats://ada:{SECRET}@broker", f"amqp://ada:{SECRET}@broker?exchange=x",
)  # fmt: skip
SECRET_BY_NAME = ("OUTBOX_DATABASE_URL", "OUTBOX_RELAY_TO")


@fuzzed
@given(st.one_of(texts, spoilt(DURATIONS)))
@example("9" * 5000 + "h")
@example("1." + "0" * 5000 + "s")
@example("9" * 1_000_001 + "h")
@example("1" * 200_000)
@example("1d" * 50_000)
def test_a_duration_is_seconds_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError as refused:
        assert_brief(refused, 200)
        return
    assert 0 <= seconds <= 3660 * 86400
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=0.0006)


@fuzzed
@given(
    st.dictionaries(
        st.sampled_from([variable.name for variable in VARIABLES]),
        st.one_of(texts, spoilt(GOOD)),
        max_size=6,
    )
)
@example({"OUTBOX_RELAY_BATCH_SIZE": "9" * 5000})
@example({"OUTBOX_METRICS_PORT": "\u0661"})
@example({"OUTBOX_DATABASE_URL": f"postgresql://ada:{SECRET}@db:{'9' * 5000}/shop"})
def test_every_variable_is_read_or_told_by_its_name(environ: dict[str, str]) -> None:
    settings, problems = Settings.read(environ)

    for problem in problems:
        assert all(name in environ and name in problem.text for name in problem.variables)
        assert len(problem.text) < 1000
        if any(name in SECRET_BY_NAME for name in problem.variables):
            assert_secretive(problem.text)
    if not any(SECRET in text for name, text in environ.items() if name not in SECRET_BY_NAME):
        assert_secretive(repr(settings))
    try:
        assert Settings.from_env(environ) == settings
    except InvalidSettings as refused:
        assert problems
        assert_brief(refused, 5000)

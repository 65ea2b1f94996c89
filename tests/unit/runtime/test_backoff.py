"""How long a relay waits before it tries again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.runtime.backoff import Backoff

SECONDS = st.floats(min_value=0.001, max_value=1e6)


@pytest.mark.parametrize(
    ("failures", "delay"), [(0, 1.0), (1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (25, 60.0)]
)
def test_it_doubles_up_to_the_cap(failures: int, delay: float) -> None:
    assert Backoff(random=lambda: 0.0).delay(failures) == delay


@given(st.integers(-10, 10_000), SECONDS, SECONDS, SECONDS, st.floats(0, 1))
def test_it_is_never_negative_nor_beyond_its_bounds(
    failures: int, base: float, cap: float, jitter: float, drawn: float
) -> None:
    delay = Backoff(base, cap, jitter, lambda: drawn).delay(failures)
    assert math.isfinite(delay)
    assert min(base, cap) <= delay <= cap + jitter


def test_ten_thousand_failures_do_not_overflow() -> None:
    assert Backoff(base=1e300, random=lambda: 1.0).delay(10_000) == 60.2


@given(st.integers(1, 200), SECONDS)
def test_it_never_shrinks(failures: int, base: float) -> None:
    backoff = Backoff(base, jitter=0.0)
    assert backoff.delay(failures) <= backoff.delay(failures + 1)


def test_the_jitter_comes_on_top() -> None:
    assert Backoff(jitter=0.2, random=lambda: 0.5).delay(1) == pytest.approx(1.1)


def test_pauses_between_tries_of_the_database_have_bounds() -> None:
    assert Backoff(0.0, 0.0, 0.0).pause(1) == 0.02
    assert Backoff(1.0, 60.0, 0.0).pause(1) == 1.0
    assert Backoff(1.0, 60.0, 0.0).pause(40) == 2.0

"""Input as an attacker, a broken client or a tired person writes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from click import ClickException
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SECRET = f"CaNaRy-{0x7F3A:x}"
"""Stands where a password stands, and nowhere else: Hypothesis tries the constants it finds in a module, not this."""

fuzzed = settings(
    deadline=timedelta(seconds=10),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
"""For each test here. An example that takes so long is a defect: nothing that is parsed is larger than a message."""

every_character = st.characters(exclude_categories=())
"""Lone surrogates too: what is not UTF-8 on a command line or in the environment becomes those."""

_NASTY = (
    "",
    "\0",
    "\r\n",
    "\n",
    "\u2028",
    "\ud800",
    "\udcff",
    "\u0661",
    "\uff0e",
    "\u200b",
    "\x7f",
    "%00",
    "%",
    "%zz",
    "%ff",
    "'",
    '"',
    "\\",
    ";--",
    "@",
    ":",
    "/",
    "//",
    "?",
    "#",
    "&",
    "=",
    ",",
    "..",
    "[",
    "]",
    "[::1",
    "{}",
    "{0}",
    "-1",
    "0",
    "1e999",
    "NaN",
    "9" * 400,
    "9" * 5000,
    "a" * 70,
    "a" * 20_000,
    " ",
    "\t",
)

texts = st.one_of(st.text(every_character, max_size=40), st.sampled_from(_NASTY))


@st.composite
def spoilt(draw: st.DrawFn, good: str | Sequence[str] | st.SearchStrategy[str]) -> str:
    """Text that is nearly right: one of these, with something put in, cut out, repeated or put in its place."""
    if isinstance(good, str):
        text = good
    else:
        text = draw(good if isinstance(good, st.SearchStrategy) else st.sampled_from(list(good)))
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 8)))
        middle = draw(texts) if draw(st.booleans()) else text[begin:end] * 2
        text = text[:begin] + middle + text[end:]
    return text


scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63) - 1, 10**400]),
    st.floats(),
    texts,
)
"""What JSON, or a client's table of headers, may have in the place of text."""

values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


def assert_brief(error: Exception, most: int = 500) -> None:
    """An error's text fits on a screen, and nothing in it steers the terminal or begins a line of a log."""
    text = error.format_message() if isinstance(error, ClickException) else str(error)
    assert len(text) < most
    assert text.isprintable()


def assert_secretive(shown: object) -> None:
    """No part of the secret that a person could guess the rest from stands in what is shown, its causes included."""
    seen: list[str] = []
    error = shown if isinstance(shown, BaseException) else None
    seen.append(f"{shown} {shown!r}")
    while error is not None:
        seen.append(f"{error} {error!r} {vars(error)}")
        error = error.__cause__ if error.__suppress_context__ else (error.__cause__ or error.__context__)
    for text in seen:
        assert SECRET not in text

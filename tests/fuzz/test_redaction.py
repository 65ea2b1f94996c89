"""Error summaries stored beside a message: bounded, one line, no secret and nothing of the payload."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.errors import PermanentError
from outbox_core.redaction import summary_of
from tests.fuzz.hostile import SECRET, fuzzed, texts

SHOWN = (
    "cannot connect to postgresql://app:{}@db:5432/shop",
    "amqps://app:{}/with@slash@mq/vhost refused",
    "password={} user=app",
    "sasl_plain_password='{}'",
    '{{"client_secret": "{}"}}',
    "Authorization: Bearer {}",
    "https://x.example/hook?token={}&x=1",
)
around = st.text(st.characters(codec="utf-8"), max_size=60)


@fuzzed
@given(st.sampled_from(SHOWN), around, around, st.integers(64, 4096))
@example(SHOWN[0], "x" * 3000, "", 64)
@example(SHOWN[5], "x " * 5000, "y" * 5000, 2048)
def test_a_secret_is_left_out_wherever_it_stands(shown: str, before: str, after: str, most: int) -> None:
    for error in (ValueError, PermanentError):
        kept = summary_of(error(f"{before} {shown.format(SECRET)} {after}"), b"{}", most)
        assert SECRET not in kept
        assert len(kept.encode()) <= most


@fuzzed
@given(texts, st.binary(max_size=60), st.integers(64, 4096))
@example("[" * 100_000, b"[" * 500_000, 2048)
@example("a:" * 50_000, b"", 2048)
@example("://" * 30_000, b"", 2048)
@example("password" * 20_000, b"", 4096)
@example("'" * 50_000 + "password='" + "x" * 50_000, b"", 4096)
@example("\ud800", b"\xff", 64)
def test_any_text_becomes_one_short_line(text: str, payload: bytes, most: int) -> None:
    kept = summary_of(ValueError(text), payload, most)

    assert kept.startswith("UNKNOWN.VALUEERROR ")
    assert len(kept.encode()) <= most
    assert "\n" not in kept
    assert "\0" not in kept


plain = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters='"\\'),
    min_size=16,
    max_size=40,
)
"""Characters that JSON does not escape: an escape ends a piece of the payload, and only long pieces are left out."""


@fuzzed
@given(st.dictionaries(around, plain, min_size=1, max_size=3), around)
def test_no_long_piece_of_the_payload_is_kept(payload: dict[str, str], before: str) -> None:
    encoded = json.dumps(payload, ensure_ascii=False)
    for quoted in (encoded, *payload.values()):
        kept = summary_of(ValueError(f"{before} bad input: {quoted}"), encoded.encode(), 2048)
        for value in payload.values():
            if value not in f"{before} bad input: ":
                assert value not in kept

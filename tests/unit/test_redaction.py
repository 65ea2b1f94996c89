"""Redaction: errors in one bounded line, URLs and tenants without what is secret about them."""

from __future__ import annotations

import json
import re
import time
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.errors import BrokerUnavailable, ConfigError, PermanentError
from outbox_core.redaction import code_of, masked_url, summary_of, tenant_mask

BYTES = 2048
TENANT = UUID(int=7)


def summary(error: BaseException, payload: bytes = b"", max_bytes: int = BYTES) -> str:
    return summary_of(error, payload, max_bytes)


def test_our_own_errors_begin_with_their_code() -> None:
    assert summary(BrokerUnavailable("gone")) == f"{BrokerUnavailable.code} gone"
    assert summary(PermanentError("no")).startswith(PermanentError.code + " ")


def test_other_errors_begin_with_unknown_and_their_type() -> None:
    assert summary(ValueError("bad")) == "UNKNOWN.VALUEERROR ValueError: bad"
    assert code_of(KeyError()) == "UNKNOWN.KEYERROR"


@given(st.text(), st.integers(64, 4096))
def test_a_summary_is_bounded_in_bytes_and_stays_valid_text(text: str, max_bytes: int) -> None:
    line = summary(ValueError(text), max_bytes=max_bytes)
    assert len(line.encode()) <= max_bytes
    assert line.startswith("UNKNOWN.VALUEERROR")
    assert "\0" not in line
    assert "\n" not in line


@pytest.mark.parametrize("character", ["é", "€", "😀"])
@pytest.mark.parametrize("max_bytes", range(64, 72))
def test_no_character_is_split(character: str, max_bytes: int) -> None:
    line = summary(ValueError(character * 200), max_bytes=max_bytes)
    assert len(line.encode()) <= max_bytes
    assert "\N{REPLACEMENT CHARACTER}" not in line
    assert line.endswith("…")


@pytest.mark.parametrize(
    "text",
    [
        "cannot connect to postgresql://user:hunter2secret@db:5432/app",
        "amqp://guest:hunter2secret@rabbit/ refused",
        "https://u:hunter2/secret@host/path",
        "password=hunter2secret host=db",
        "PASSWORD: hunter2secret",
        'sasl_plain_password="hunter2secret"',
        "token = hunter2secret",
        "api_key=hunter2secret",
        "Authorization: Bearer hunter2secret",
        "sent Basic aHVudGVyMnNlY3JldA== to the broker",
        "nats: no servers: user:hunter2secret@host:4222",
        "SASL PLAIN failed for user=shop pwd=hunter2secret",
        "PGPASSWORD='hunter2secret'",
        "X-Api-Key: hunter2secret",
        "AccountKey=hunter2secret;",
        "SharedAccessSignature sig=hunter2secret",
        "signature=hunter2secret",
        "passcode=hunter2secret",
        "{'password': b'hunter2secret'}",
        "{'password': b'it is hunter2secret here'}",
        "password = hunter2secret",
        "--password hunter2secret",
        "-token hunter2secret",
        "?password=hunter2secret&x=1",
        'client_secret: "hun\\"hunter2secret"',
        "client_secret: 'hun\\'hunter2secret'",
        "aws_secret_access_key=hunter2secret",
        "ConnectionString: Endpoint=sb://x;SharedAccessKeyName=n;SharedAccessKey=hunter2secret",
        'the answer was "{\\"user\\": \\"x\\", \\"password\\": \\"hunter2secret\\"}"',
        'the answer was "{\\"password\\": \\"it is hunter2secret\\"}"',
        "secret_key=hunter2secret",
        "SecretKey: hunter2secret",
        "user:hun/hunter2secret@rabbit:5672 refused",
        "guest:hunter2secret@rabbit/ refused",
        "password_hash=hunter2secret",
        "Cookie: session=hunter2secret",
        "auth=('user', 'hunter2secret')",
        "Authorization: ApiKey hunter2secret",
        "Authorization: Negotiate hunter2secret",
        'Authorization: Digest username="u", response="hunter2secret"',
        "{'Authorization': 'AWS4-HMAC-SHA256 Credential=x, Signature=hunter2secret'}",
        "Cookie: a=1; session=hunter2secret",
        "Set-Cookie: a=1; session=hunter2secret; Path=/",
        "token: Token hunter2secret",
        'password => "hunter2secret"',
        '"password" : {"value": "hunter2secret"}',
        "'secrets': ['one', 'hunter2secret']",
        'password "hunter2secret" was rejected',
        "wrong password 'it is hunter2secret'",
        "<password>hunter2secret</password>",
        "<clientSecret>hunter2secret</clientSecret>",
        "creds=hunter2secret",
        "secret key = hunter2secret",
        "api key: hunter2secret",
        "password:          hunter2secret",
        "password      =      hunter2secret",
        "password:\n  hunter2secret",
        "password: |\n  hunter2secret",
        "password = 'two\\\nlines hunter2secret'",
        "password -> hunter2secret",
        "('Authorization', 'hunter2secret')",
        "(b'authorization', b'ApiKey hunter2secret')",
        "('Cookie', 'a=1; session=hunter2secret')",
        "[('user', 'x'), ('x-api-key', 'hunter2secret')]",
        '["password", "it is hunter2secret"]',
        "-----BEGIN PRIVATE KEY-----\nhunter2secret\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2secret",
        "--api-key hunter2secret",
        "jwt=hunter2secret",
        "sessionid=hunter2secret",
        "pw=hunter2secret",
        "nkeys_seed=hunter2secret",
        '"auth": ["user", "hunter2secret"]',
        "Incorrect API key provided: hunter2secret",
        "token: ApiKey hunter2secret",
        "refused eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.hunter2secret here",
        "refused ghp_hunter2secretaaaaaaaa",
        "refused xoxb-1234-hunter2secret",
    ],
)
def test_secrets_are_left_out(text: str) -> None:
    line = summary(ConnectionError(text))
    assert "hunter2" not in line
    assert "aHVudGVy" not in line
    assert "***" in line


@pytest.mark.parametrize("length", [600, 1_500, 20_000])
@pytest.mark.parametrize(
    "text",
    [
        "cannot connect to amqp://shop:{}@rabbit:5672/v failed",
        "cannot connect to amqp://:{}@rabbit:5672/",
        "password={} host=db",
        "client_secret: '{}'",
        "client_secret: 'two words {}'",
        "nats: no servers: user:{}@host:4222",
        "Authorization: Bearer {} was refused",
        "sent Basic {} to the broker",
        "--password {} was given",
    ],
)
def test_no_secret_is_too_long(text: str, length: int) -> None:
    """The longest is cut by the limit of what is scrubbed."""
    line = summary(ConnectionError(text.format("S3cret" * (length // 6))))
    assert "S3cret" not in line
    assert "***" in line


def test_one_without_a_scheme_may_be_long_too() -> None:
    line = summary(ConnectionError(f"nats: no servers: user:{'S3cret' * 250}@host:4222"))
    assert line.endswith("nats: no servers: ***@host:4222")


@pytest.mark.parametrize(
    ("secret", "space"),
    [
        ("amqp://shop:{}@rabbit:5672/v", " "),
        ("amqp://shop:{}@rabbit:5672/v", "\n"),
        ("password={}", " "),
        ("password={}", "\n"),
        ("user:{}@host:4222", " "),
        ("user:{}@host:4222", "\n"),
    ],
)
@pytest.mark.parametrize("kept", range(1, 32, 6))
def test_no_secret_shows_where_the_text_is_cut(secret: str, space: str, kept: int) -> None:
    """However many of its characters stand before the end of what is scrubbed, after a long text that is left out."""
    long = f"password={'x' * 15_000}{space}"
    filler = f"word{space}" * 400
    before = (long + filler)[: 8 * BYTES - len(space) - kept] + space
    line = summary(ConnectionError(before + secret.format("S3cret" * 8) + f"{space}more" * 100))
    assert "S3c" not in line


@pytest.mark.parametrize(
    "text",
    [
        "ask help@example.org about it",
        "at 12:30 a@b said no",
        "at 12:30 root@db:5432 was refused",
        "12:30:01 host db-1:5432 refused",
        "see https://example.org/a/b?c=1#d",
        "see https://example.org/a or write to help@example.org",
        "no route to 10.0.0.1:5672",
        "design = blue",
        "signal: lost",
        "multisig: 2 of 3",
        "2 tokens - none: left",
        "run again with seed=179389",
        "the author: unknown",
        "the key provided: order-42",
        "no primary key: 7",
        "the new pwa: 1",
    ],
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert summary(ConnectionError(text)) == f"UNKNOWN.CONNECTIONERROR ConnectionError: {text}"


@pytest.mark.parametrize(
    "piece",
    [
        "a://",
        "x:",
        "a@",
        "a:b@",
        "://@",
        "password ",
        "pass='",
        'token="\\',
        "sasl_",
        "shared",
        "session ",
        "token used ",
        "pass'",
        "eyJ-",
        "eyJaaaaaaaaaaaa.",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "cookie',",
        "--token ",
        "a.",
        " ",
    ],
)
def test_hostile_texts_are_scrubbed_in_bounded_time(piece: str) -> None:
    error = ConnectionError(piece * (8 * BYTES // len(piece)))
    began = time.perf_counter()
    summary(error)
    assert time.perf_counter() - began < 0.5


def test_a_payload_quoted_whole_or_in_part_is_left_out() -> None:
    payload = json.dumps({"card": "4111-1111-1111-1111", "name": "Ada Lovelace"}).encode()
    whole = summary(ValueError(f"cannot send {payload.decode()}"), payload)
    part = summary(ValueError("bad value '4111-1111-1111-1111' of Ada Lovelace"), payload)
    for line in (whole, part):
        assert "4111-1111" not in line
        assert "Lovelace" not in line
        assert "[payload]" in line
    assert part.startswith("UNKNOWN.VALUEERROR ValueError: bad value")


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60), st.data())
def test_no_long_piece_of_a_payload_survives(secret: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(secret) - 11))
    piece = secret[begin : begin + 11]
    line = summary(ValueError(f"~~ {piece} ~~"), secret.encode())
    assert piece not in line


class BrokenStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_whose_str_fails_is_named_by_its_type() -> None:
    assert summary(BrokenStr()) == "UNKNOWN.BROKENSTR BrokenStr:"


def test_a_group_shows_the_codes_of_its_members() -> None:
    line = summary(ExceptionGroup("two handlers failed", [ValueError("a"), BrokerUnavailable("b")]))
    assert line.startswith("UNKNOWN.EXCEPTIONGROUP")
    assert "UNKNOWN.VALUEERROR a" in line
    assert f"{BrokerUnavailable.code} b" in line


def test_a_very_long_text_beside_a_large_payload_is_bounded() -> None:
    assert len(summary(ValueError("x" * 5_000_000), b"y" * 1_000_000).encode()) <= BYTES


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://ada:canary@db:3306/shop?ssl=canary", "mysql://ada:***@db:3306/shop?ssl=***"),
        ("mysql://ada@db/shop", "mysql://ada@db/shop"),
        ("mysql://ada:canary/@db", "***"),
        ("mysql://ada:canary#@db", "***"),
        ("mysql://[canary", "***"),
        ("mysql://ada:canary@db\u2100/shop", "***"),
    ],
)
def test_a_url_shows_no_password_and_no_value_of_an_option(url: str, shown: str) -> None:
    assert masked_url(url, readable=True) == shown
    assert masked_url(url, readable=False) == "***"


def test_a_tenant_hash_is_stable_and_differs_by_tenant_and_by_secret() -> None:
    plain, secret = tenant_mask("hash"), tenant_mask("hash", b"s")
    assert re.fullmatch(r"[0-9a-f]{16}", plain(TENANT) or "")
    assert plain(TENANT) == tenant_mask("hash")(TENANT)
    assert len({plain(TENANT), plain(uuid4()), secret(TENANT)}) == 3
    assert tenant_mask("off")(TENANT) == str(TENANT)
    assert tenant_mask("drop")(TENANT) is None


def test_an_unknown_mask_and_a_long_secret_are_refused() -> None:
    with pytest.raises(ConfigError, match="tenants must be 'off', 'hash' or 'drop', got 'on'"):
        tenant_mask("on")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has 65 bytes, at most 64 are allowed"):
        tenant_mask("hash", b"x" * 65)

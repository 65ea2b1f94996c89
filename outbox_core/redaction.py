"""Redaction: the one place that decides what may be shown or stored of errors, URLs and tenants.

An error becomes one line: its code, its type and a scrubbed, bounded text, without secrets and without the payload.
A URL loses its password and the values of its options. A tenant is shown, hashed or dropped.

No driver is imported here. A driver's errors are known by the name of their module, for they may come from the
application's own database as well.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from outbox_core.errors import ConfigError, OutboxError

if TYPE_CHECKING:
    from uuid import UUID

Masking: TypeAlias = Literal["off", "hash", "drop"]
"""``off`` shows the tenant, ``hash`` a short hash of it, ``drop`` nothing."""

_LINES: Final = (
    # Headers whose value has several words, in an order of its own: none of them is kept.
    (
        re.compile(r"(?i)(authorization|cookie)(\\{0,4}[\"']?\s{0,40}[=:]|\\{0,4}[\"']\s{0,40},)[^\r\n]*"),
        r"\1\2 ***",
    ),
    (re.compile(r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|$)"), "***"),
)
"""Patterns that end with the line: applied while the text still has its lines."""
_SECRETS: Final = (
    # An address without a scheme.
    (re.compile(r"\b[\w.+\-]{1,64}:(?!//)[^\s:@]+@([\w.\-]{1,255})"), r"***@\1"),
    (
        re.compile(
            r"(?i)((?:pass(?:word|wd|phrase|code)?|\bpw|pwd|secret|token|\bsig(?:nature)?|\bjwt|\bsession[ _-]?id"
            r"|nkeys?_seed|\bcred(?:ential)?s?|(?:api|access|private|secret|account|shared\w{0,20}+)[ _-]?key)"
            r"(?:s|_\w{1,20}+)?|sasl_\w{1,40}+)"
            r"((?:\\{0,4}[\"']?\s?(?:[=:]>?|->)|\\{0,4}[\"']\s?,|\s(?:provided|given|received|used)\s?:)\s?)"
            r"(?:(?:bearer|basic|token|apikey|[|>]-?)\s+)?"
            r"(?:\\{1,4}[\"'].{0,255}?\\{1,4}[\"']|b?'(?:[^'\\]|\\.)*(?:'|\\?$)|b?\"(?:[^\"\\]|\\.)*(?:\"|\\?$)"
            r"|\{[^}]*\}?|\[[^\]]*\]?|\S+)"
        ),
        r"\1\2***",
    ),
    (
        re.compile(
            r"(?i)\b(pass(?:word|wd|phrase|code)?|secret|token)\s"
            r"(?:'(?:[^'\\]|\\.)*(?:'|\\?$)|\"(?:[^\"\\]|\\.)*(?:\"|\\?$))"
        ),
        r"\1 ***",
    ),
    (re.compile(r"(?i)<(\w{0,40}(?:pass(?:word|wd)|secret|token)\w{0,40})>[^<]*"), r"<\1>***"),
    (re.compile(r"(?i)\b(auth[\"']?\s?[=:]\s?)(?:\([^)]{0,255}\)?|\[[^\]]{0,255}\]?)"), r"\1***"),
    (
        re.compile(
            r"(?i)(--?(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|(?:api|access|private|secret)[_-]?key))\s+\S+"
        ),
        r"\1 ***",
    ),
    # Such as JSON Web Tokens, and those of services that mark theirs.
    (
        re.compile(
            r"(?<![\w\-])(?:eyJ[\w\-]{10,4096}+\.[\w\-]{10,4096}+\.[\w\-]*|gh[a-z]_\w{20,}|xox[a-z]-[\w\-]{10,}|AKIA[0-9A-Z]{16})"
        ),
        "***",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=\-]{8,}"), r"\1 ***"),
)
"""Patterns for a text in one line, with one space between two words."""
_SCANNED_PER_BYTE: Final = 8
"""Characters of a long text that are scrubbed, per byte that may be kept."""
_LONGEST_WORD: Final = 1024
_WORDS: Final = re.compile(r"(\s+)")
_SIGNS: Final = re.compile(r"[:=]")
_SEARCHED: Final = 200_000_000
"""Characters of payload times characters of text: the larger the payload, the less is kept of the text beside it."""
_SHORTEST: Final = 200
_TOO_LARGE_TO_SEARCH: Final = (
    "(its text may quote any of several messages, which are too large to look through)"
)
_PIECE: Final = 8
"""Characters that are compared with the payload at a time."""
_STRIDE: Final = 4
_LOGGED_BYTES: Final = 1024
_DIGEST_BYTES: Final = 8
_MAX_SECRET_BYTES: Final = 64
_DRIVER_MODULES: Final = ("asyncpg.", "psycopg.", "psycopg2.", "sqlalchemy.")
"""Modules whose errors may quote a row: only their SQLSTATE is shown."""


def code_of(error: BaseException) -> str:
    """The stable code of an error: that of an `OutboxError`, ``UNKNOWN`` and its type for any other."""
    if isinstance(error, OutboxError):
        return error.code
    return f"UNKNOWN.{type(error).__name__.upper()}"


def summary_of(error: BaseException, payload: bytes, max_bytes: int) -> str:
    """One line for ``last_error``: the code first, so that dead letters can be grouped by it."""
    text = _scrubbed(_beginning(_text(error), max_bytes * _SCANNED_PER_BYTE))
    return _line(error, _without_payload(text[:max_bytes], payload.decode("utf-8", "replace")), max_bytes)


@lru_cache(maxsize=32)
def _scrubbed(text: str) -> str:
    """The text in one line, without secrets. Cached: in an outage many messages have the same text."""
    text = "".join(map(_without_user, _WORDS.split(text)))
    text = " ".join(_masked(text, _LINES).split())
    return _masked(text, _SECRETS)


def _masked(text: str, patterns: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in patterns:
        text = pattern.sub(replacement, text)
    return text


def summary_of_shared(error: BaseException, payloads: Sequence[bytes], max_bytes: int) -> str:
    """Summarise an error that several messages share, any of which it may quote."""
    if sum(map(len, payloads)) > _SEARCHED // _SHORTEST:
        return _line(error, _TOO_LARGE_TO_SEARCH, max_bytes)
    return summary_of(error, b"\n".join(payloads), max_bytes)


def _line(error: BaseException, text: str, max_bytes: int) -> str:
    kind = "" if isinstance(error, OutboxError) else f"{type(error).__name__}: "
    line = " ".join(f"{code_of(error)} {kind}{text}".split())
    return _cut(line.replace("\0", ""), max_bytes)


def why_failed(task: asyncio.Task[Any]) -> str | None:
    """One scrubbed line for the log: the error that ended a task of the application; None when it did not fail."""
    error = asyncio.CancelledError("from within") if task.cancelled() else task.exception()
    return None if error is None else summary_of(error, b"", _LOGGED_BYTES)


def _text(error: BaseException) -> str:
    if str(type(error).__module__).startswith(_DRIVER_MODULES):
        return str(getattr(error, "sqlstate", None) or "")
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        parts = [f"{code_of(one)} {_text(one)}" for one in group.exceptions[:5]]
        return f"{group.message}: {'; '.join(parts)}"
    try:
        return str(error)
    except Exception:  # an exception whose own __str__ fails must not take the relay down
        return ""


def _without_user(word: str) -> str:
    """The word without everything between :// and its last @: a password may contain a slash or an @."""
    begin, end = word.find("://"), word.rfind("@")
    return f"{word[: begin + 3]}***{word[end:]}" if 0 <= begin < end else word


def _beginning(text: str, characters: int) -> str:
    """The beginning of a long text, up to the end of a word: half a secret would not be recognised."""
    if len(text) <= characters:
        return text
    *whole, rest = _WORDS.split(text[:characters])
    if len(rest) >= _LONGEST_WORD:
        # A secret may begin in a word that long: only what stands before its first sign is kept.
        whole += [_SIGNS.split(rest, maxsplit=1)[0], "***"]
    return "".join(whole)


def _without_payload(text: str, content: str) -> str:
    """Replace every piece of the text, from 11 characters up, that also stands in the payload.

    A common piece of that length covers one of the positions that are compared; from there it is extended in both
    directions.
    """
    text = text[: max(_SEARCHED // (len(content) + 1), _SHORTEST)]
    known: dict[str, bool] = {}

    def quoted(begin: int) -> bool:
        piece = text[begin : begin + _PIECE]
        if piece not in known:
            known[piece] = piece in content
        return known[piece]

    kept: list[str] = []
    done = 0
    for position in range(0, len(text) - _PIECE + 1, _STRIDE):
        if position < done or not quoted(position):
            continue
        begin, end = position, position + _PIECE
        while begin > done and quoted(begin - 1):
            begin -= 1
        while end < len(text) and quoted(end + 1 - _PIECE):
            end += 1
        kept += (text[done:begin], "[payload]")
        done = end
    return "".join((*kept, text[done:]))


def _cut(text: str, max_bytes: int) -> str:
    """The text within ``max_bytes`` of UTF-8, without splitting a character."""
    encoded = text.encode("utf-8", "replace")  # half a surrogate pair cannot be stored
    if len(encoded) <= max_bytes:
        return encoded.decode("utf-8")
    return encoded[: max_bytes - 3].decode("utf-8", "ignore") + "…"


def masked_url(url: str, *, readable: bool) -> str:
    """The scheme, user, hosts and path of a URL; the password and the values of options are left out.

    One that is not ``readable``, by the rules of the store that would connect with it, comes back as ``***``: a
    mistyped URL shows its password in unexpected places.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    if not readable or "@" in parts.path + parts.query or parts.fragment:
        return "***"
    credentials, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{user}:***@" if colon else f"{user}{at}"
    options = "&".join(f"{pair.partition('=')[0]}=***" for pair in parts.query.split("&") if pair)
    return f"{parts.scheme}://{shown}{hosts}{parts.path}{'?' if options else ''}{options}"


def tenant_mask(masking: Masking, secret: bytes = b"") -> Callable[[UUID], str | None]:
    """A function that writes a tenant as text, or as None when it is left out.

    The hash of a tenant is always the same, so that lines of one tenant can be found together. A reader who can list
    the tenants can find out whose hash it is, unless a ``secret`` of at most 64 bytes goes into it.
    """
    given: object = masking
    if len(secret) > _MAX_SECRET_BYTES:
        raise ConfigError(
            f"the secret of a tenant mask has {len(secret)} bytes, at most {_MAX_SECRET_BYTES} are allowed"
        )
    if given == "off":
        return str
    if given == "drop":
        return _nothing
    if given == "hash":
        return lambda tenant: blake2b(tenant.bytes, digest_size=_DIGEST_BYTES, key=secret).hexdigest()
    raise ConfigError(f"tenants must be 'off', 'hash' or 'drop', got {given!r}")


def _nothing(_tenant: UUID) -> None:
    return None

"""What is kept and shown of an error: its code, its type and a scrubbed, bounded text. Never a payload or a secret."""

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
"""What is told by where a line ends."""
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
"""Of a text that is one line, with one space between two words."""
_SCANNED_PER_BYTE: Final = 8
"""Of a long text so many times what may be kept is looked at."""
_LONGEST_WORD: Final = 1024
_WORDS: Final = re.compile(r"(\s+)")
_SIGNS: Final = re.compile(r"[:=]")
_SEARCHED: Final = 200_000_000
"""Characters of payload times characters of text: the larger the payload, the less is kept of the text beside it."""
_SHORTEST: Final = 200
_TOO_MUCH_BESIDE_IT: Final = (
    "(its text may quote any of several messages, which are too large to look through)"
)
_PIECE: Final = 8
_STRIDE: Final = 4
_LOGGED_BYTES: Final = 1024
_DIGEST_BYTES: Final = 8
_MAX_SECRET_BYTES: Final = 64
_DRIVER_MODULES: Final = ("asyncpg.", "psycopg.", "psycopg2.", "sqlalchemy.")


def code_of(error: BaseException) -> str:
    """The stable code of an error; what nobody classified is ``UNKNOWN`` and its type."""
    if isinstance(error, OutboxError):
        return error.code
    return f"UNKNOWN.{type(error).__name__.upper()}"


def summary_of(error: BaseException, payload: bytes, max_bytes: int) -> str:
    """One line for ``last_error``: the code first, so that dead letters can be grouped by it."""
    text = _scrubbed(_beginning(_text(error), max_bytes * _SCANNED_PER_BYTE))
    return _line(error, _without_payload(text[:max_bytes], payload.decode("utf-8", "replace")), max_bytes)


@lru_cache(maxsize=32)
def _scrubbed(text: str) -> str:
    """Without secrets, and one line. In an outage many messages have the same text."""
    text = "".join(map(_without_user, _WORDS.split(text)))
    text = " ".join(_masked(text, _LINES).split())
    return _masked(text, _SECRETS)


def _masked(text: str, patterns: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in patterns:
        text = pattern.sub(replacement, text)
    return text


def summary_of_shared(error: BaseException, payloads: Sequence[bytes], max_bytes: int) -> str:
    """The same of an error that several messages have got together, any of which it may quote."""
    if sum(map(len, payloads)) > _SEARCHED // _SHORTEST:
        return _line(error, _TOO_MUCH_BESIDE_IT, max_bytes)
    return summary_of(error, b"\n".join(payloads), max_bytes)


def _line(error: BaseException, text: str, max_bytes: int) -> str:
    kind = "" if isinstance(error, OutboxError) else f"{type(error).__name__}: "
    line = " ".join(f"{code_of(error)} {kind}{text}".split())
    return _cut(line.replace("\0", ""), max_bytes)


def why_failed(task: asyncio.Task[Any]) -> str | None:
    """One line for the log of what ended somebody else's task, scrubbed; None when it did not fail."""
    error = asyncio.CancelledError("from within") if task.cancelled() else task.exception()
    return None if error is None else summary_of(error, b"", _LOGGED_BYTES)


def _text(error: BaseException) -> str:
    if str(type(error).__module__).startswith(_DRIVER_MODULES):
        return str(getattr(error, "sqlstate", None) or "")  # a driver's text may quote a row
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        parts = [f"{code_of(one)} {_text(one)}" for one in group.exceptions[:5]]
        return f"{group.message}: {'; '.join(parts)}"
    try:
        return str(error)
    except Exception:  # an exception whose own __str__ fails must not take the relay down
        return ""


def _without_user(word: str) -> str:
    """Without whatever stands before the last @ of an address: a password may have a slash or an @ of its own."""
    begin, end = word.find("://"), word.rfind("@")
    return f"{word[: begin + 3]}***{word[end:]}" if 0 <= begin < end else word


def _beginning(text: str, characters: int) -> str:
    """A long text up to the end of a word, so that no secret is cut in two and then not known for one."""
    if len(text) <= characters:
        return text
    *whole, rest = _WORDS.split(text[:characters])
    if len(rest) >= _LONGEST_WORD:
        # Of one that long no more is kept than cannot be part of a secret.
        whole += [_SIGNS.split(rest, maxsplit=1)[0], "***"]
    return "".join(whole)


def _without_payload(text: str, content: str) -> str:
    """Leave out every piece of the text, from 11 characters up, that stands in the payload.

    A common piece of that length covers one of the places looked at; from there it is followed in both directions.
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
    for place in range(0, len(text) - _PIECE + 1, _STRIDE):
        if place < done or not quoted(place):
            continue
        begin, end = place, place + _PIECE
        while begin > done and quoted(begin - 1):
            begin -= 1
        while end < len(text) and quoted(end + 1 - _PIECE):
            end += 1
        kept += (text[done:begin], "[payload]")
        done = end
    return "".join((*kept, text[done:]))


def _cut(text: str, max_bytes: int) -> str:
    """At most so many bytes of UTF-8, without splitting a character."""
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
    """How a tenant is written: a function to text, or to None when it is left out.

    The hash of a tenant is always the same, so that lines of one tenant can be found together. Whoever can list the
    tenants can find out whose hash it is, unless a ``secret`` of at most 64 bytes goes into it.
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

"""What is kept and shown of an error: its code, its type and a scrubbed, bounded text. Never a payload or a secret."""

from __future__ import annotations

import re
from typing import Final, cast

from outbox_core.errors import OutboxError

_SECRETS: Final = (
    (re.compile(r"(?i)([a-z][a-z0-9+.\-]*://)[^\s/@]*@"), r"\1***@"),
    (
        re.compile(
            r"(?i)\b(pass(?:word|wd)?|secret|token|api[_-]?key|sasl_\w+|authorization)(\s*[=:]\s*)\S+"
        ),
        r"\1\2***",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=\-]{8,}"), r"\1 ***"),
)
_MIN_QUOTED_CHARACTERS: Final = 8
_DRIVER_MODULES: Final = ("asyncpg.", "psycopg.", "sqlalchemy.")


def code_of(error: BaseException) -> str:
    """The stable code of an error; what nobody classified is ``UNKNOWN`` and its type."""
    if isinstance(error, OutboxError):
        return error.code
    return f"UNKNOWN.{type(error).__name__.upper()}"


def summary_of(error: BaseException, payload: bytes, max_bytes: int) -> str:
    """One line for ``last_error``: the code first, so that dead letters can be grouped by it."""
    text = _text(error)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    text = _without_payload(text, payload)
    kind = "" if isinstance(error, OutboxError) else f"{type(error).__name__}: "
    line = " ".join(f"{code_of(error)} {kind}{text}".split())
    return _cut(line.replace("\0", ""), max_bytes)


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


def _without_payload(text: str, payload: bytes) -> str:
    """Drop every piece of the text that stands in the payload, from the length of a short word up."""
    content = payload.decode("utf-8", "replace")
    if not text or not content:
        return text
    if len(content) >= _MIN_QUOTED_CHARACTERS and content in text:
        text = text.replace(content, "[payload]")
    for quoted in re.findall(r"'([^']{8,})'|\"([^\"]{8,})\"", text):
        piece = quoted[0] or quoted[1]
        if piece in content:
            text = text.replace(piece, "[payload]")
    return text


def _cut(text: str, max_bytes: int) -> str:
    """At most so many bytes of UTF-8, without splitting a character."""
    encoded = text.encode("utf-8", "replace")  # half a surrogate pair cannot be stored
    if len(encoded) <= max_bytes:
        return encoded.decode("utf-8")
    return encoded[: max_bytes - 3].decode("utf-8", "ignore") + "…"

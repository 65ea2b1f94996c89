"""What PostgreSQL's ``jsonb`` refuses, found in JSON text before it is sent."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn

from outbox_core.errors import EncodingError

ROOT: Final = "payload"
"""Where every path of an `EncodingError` begins."""

MAX_DEPTH: Final = 200
"""Levels of arrays and objects inside one another. Many parsers stop at less, and PostgreSQL's at some thousands."""

TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep; make it flatter"
SURROGATE: Final = re.compile("[\ud800-\udfff]")

_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_UNESCAPED_STRING: Final = re.compile(rb'"[^"]*"')
_BRACES_AS_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_NUMERIC_MAX_EXPONENT: Final = 131_071
_NUMERIC_MAX_SCALE: Final = 16_383
MAX_DIGITS: Final = 400
"""Of a number with an exponent when PostgreSQL writes it out, which it does without one: more than a double can need,
and not so many that a small message becomes a large one."""


def broken_rule(text: str) -> str | None:
    """What ``jsonb`` would refuse in text that is otherwise JSON, or None; found at the speed of a search.

    It finds NUL, surrogates that were not escaped, and too many levels. `parse_json` finds the rest.
    """
    if "\\u0000" in text and _NUL.search(text) is not None:
        return "it has NUL (\\u0000), which PostgreSQL cannot store"
    if not text.isascii() and not _is_unicode(text):
        return "it has a lone surrogate, which is not a character"
    if text.count("[") + text.count("{") > MAX_DEPTH and _too_deep(text):
        return TOO_DEEP
    return None


def parse_json(text: str) -> object:
    """The strings, arrays and objects of JSON text; its numbers are only checked, and come back as zeros."""
    try:
        parsed: object = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise EncodingError(
            ROOT, f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise EncodingError(ROOT, TOO_DEEP) from None
    return parsed


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep(text: str) -> bool:
    """Take away the innermost brackets again and again: as many times as there are levels."""
    encoded = text.encode()
    if b"\\" in encoded:
        encoded = _STRING.sub(b"", encoded)
    else:
        # Without escapes a string ends at the next quote; two quotes side by side enclose or separate nothing.
        encoded = _UNESCAPED_STRING.sub(b"", encoded.translate(None, _NOT_STRUCTURE).replace(b'""', b""))
    brackets = encoded.translate(_BRACES_AS_BRACKETS, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def _read_int(digits: str) -> int:
    if len(digits.lstrip("-")) > _NUMERIC_MAX_EXPONENT + 1:
        _refuse_number()
    return 0


def _read_float(digits: str) -> float:
    try:
        number = Decimal(digits)
    except InvalidOperation:
        _refuse_number()
    exponent = number.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    if number.adjusted() > _NUMERIC_MAX_EXPONENT or scale > _NUMERIC_MAX_SCALE:
        _refuse_number()
    if max(number.adjusted() + 1, 1) + scale > max(MAX_DIGITS, len(digits)):
        raise EncodingError(
            ROOT,
            f"a number in it has an exponent and more than {MAX_DIGITS} digits when PostgreSQL writes it out;"
            " send it as a string",
        )
    return 0.0


def _refuse_number() -> NoReturn:
    raise EncodingError(ROOT, "a number in it is larger, or finer, than PostgreSQL's numeric can hold")


def _refuse_constant(name: str) -> NoReturn:
    raise EncodingError(ROOT, f"it has {name}, which is not JSON; send null or a string instead")


_decoder: Final = json.JSONDecoder(
    parse_int=_read_int, parse_float=_read_float, parse_constant=_refuse_constant
)

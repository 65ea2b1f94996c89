"""Durations as people write them: ``200ms``, ``1s``, ``1m``, ``168h``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_LONGEST: Final = 3660 * 86400
_MOST_CHARACTERS: Final = 100

ACCEPTED: Final = "a duration such as 200ms, 1s, 1m, 1h30m or 168h"
"""The texts that `parse_duration` reads, in words."""


def parse_duration(text: str) -> float:
    """Seconds. A number needs its unit, save 0; parts add up (``1h30m``). Raises ValueError for anything else."""
    given = text.strip().lower()
    if given == "0":
        return 0.0
    if len(given) > _MOST_CHARACTERS or _WHOLE.fullmatch(given) is None:
        raise ValueError(f"expected {ACCEPTED}")
    seconds = sum((Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(given)), Decimal(0))
    if seconds > _LONGEST:
        raise ValueError("a duration may be 3660 days (87840h) at most")
    return float(seconds)


def format_duration(seconds: float) -> str:
    """Text that `parse_duration` reads as the same duration, to the millisecond: ``168h``, ``1m30s``, ``1s500ms``."""
    rest = round(seconds * 1000)
    parts: list[str] = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"

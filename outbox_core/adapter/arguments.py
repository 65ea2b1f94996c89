"""Checks of a dispatcher's arguments, so that a wrong type is refused at once and not with the first message."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from outbox_core.errors import ConfigError

MAX_SECONDS: Final = 3600.0
MAX_SHOWN_CHARACTERS: Final = 200
T = TypeVar("T")

_CREDENTIALS: Final = re.compile(
    r"[^\s/@]*:[^\s/@]*@|://[^\s/]*@|(?:password|passwd|pwd|secret|token)\s*[=:]", re.IGNORECASE
)


def seconds(name: str, value: object) -> float:
    """A number of seconds, above 0 and an hour at most."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_SECONDS:
        raise ConfigError(
            f"{name} is {value!r} and must be a number of seconds from above 0 to {MAX_SECONDS:g}"
        )
    return float(value)


def optional_text(name: str, value: object, *, may_be_empty: bool = False) -> str | None:
    """Text, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a str, got {type(value).__name__}")
    if not value and not may_be_empty:
        raise ConfigError(f"{name} is empty; leave it out instead")
    return value


def flag(name: str, value: object) -> bool:
    """True or False; other truthy or falsy values are refused."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return value


def instance(name: str, value: object, kind: type[T]) -> T:
    """An instance of this class or of a subclass."""
    if not isinstance(value, kind):
        raise ConfigError(
            f"{name} must be a {kind.__module__.partition('.')[0]} {kind.__name__}, got {type(value).__name__}"
        )
    return value


def shown_name(value: object) -> str | None:
    """A name for metrics and logs, or None. One that seems to contain credentials is refused, and not shown."""
    name = optional_text("name", value)
    if name is None:
        return None
    if _CREDENTIALS.search(name) is not None:
        raise ConfigError(
            "name is shown in metrics and logs, and this one seems to hold credentials; choose another, or leave it"
            " out for one without them"
        )
    if len(name) > MAX_SHOWN_CHARACTERS or not name.isprintable():
        raise ConfigError(f"name must be one line of at most {MAX_SHOWN_CHARACTERS} characters")
    return name

"""The settings of a relay, checked against each other when it is made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, Literal

from outbox_core.errors import ConfigError

_LARGEST: Final = {"int": 2**31 - 1, "float": 366 * 24 * 3600}
"""The most that the database and its clock can work with: counts of 31 bits, durations of a year."""
_BETWEEN: Final = {
    "database_timeout": (0.01, 3600.0),
    "takeover": (0.5, 3600.0),
    "poll_interval": (0.001, 3600.0 * 24),
}
"""The range that can work at all, in seconds: below, nothing is done in time; above, a loss is not noticed."""
_POSITIVE: Final = frozenset(
    {
        "batch_size", "batch_bytes", "concurrency", "poll_interval", "lock_ttl", "max_attempts",
        "dispatch_timeout", "database_timeout", "backoff_base", "takeover",
    }
)  # fmt: skip
_CHOICES: Final = {"on_published": ("mark", "delete"), "on_dead": ("skip", "block")}
HEARTBEATS: Final = 8
"""How often a leader says that it lives in the time after which it is replaced."""
MARGIN: Final = 1.0
"""Seconds between the last moment a lease is relied on and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """How a relay works. Durations are seconds.

    A lease must outlast everything done under it: ``database_timeout`` for the claim, ``dispatch_timeout``,
    ``database_timeout`` for the completion and a margin of 1 s have to fit in ``lock_ttl``.
    """

    batch_size: int = 100
    """Rows of a claim; ten times as many while a backlog lasts."""
    batch_bytes: int = 8 * 1024 * 1024
    """Payload bytes of a claim, as they are in memory; a larger single row still comes, alone."""
    concurrency: int = 64
    """Dispatches at one time, over all tables and destinations, for dispatchers that take one message at a time."""
    poll_interval: float = 1.0
    lock_ttl: float = 60.0
    max_attempts: int = 25
    dispatch_timeout: float = 30.0
    database_timeout: float = 5.0
    backoff_base: float = 1.0
    backoff_cap: float = 60.0
    backoff_jitter: float = 0.2
    last_error_max_bytes: int = 2048
    single_active: bool = True
    takeover: float = 8.0
    """A leader that has fallen silent for so long is replaced. Not shorter than ``database_timeout``."""
    on_published: Literal["mark", "delete"] = "mark"
    on_dead: Literal["skip", "block"] = "skip"
    """Decides whether the messages behind a dead one of the same key go on or wait. Relays side by side know no order,
    so that nothing can wait there: ``"block"`` needs ``single_active``."""

    def __post_init__(self) -> None:
        problems = [
            problem for setting in fields(self) if (problem := self._flaw(setting.name, str(setting.type)))
        ]
        # Whether values fit together can only be checked when each makes sense by itself.
        if problems := problems or [*self._check_lease(), *self._check_takeover(), *self._check_order()]:
            raise ConfigError("; ".join(problems))

    def _flaw(self, name: str, kind: str) -> str | None:
        value = getattr(self, name)
        if problem := _check_type(name, kind, value):
            return problem
        if name in _POSITIVE and value <= 0:
            return f"{name} must be greater than 0, got {value!r}"
        if name in _CHOICES and value not in _CHOICES[name]:
            return f"{name} must be {' or '.join(map(repr, _CHOICES[name]))}, got {value!r}"
        if name == "last_error_max_bytes" and value < 64:
            return f"last_error_max_bytes must be at least 64, got {value}"
        least, most = _BETWEEN.get(name, (value, value))
        return (
            None if least <= value <= most else f"{name} must be from {least:g} to {most:g} s, got {value!r}"
        )

    def _check_lease(self) -> Iterator[str]:
        needed = self.dispatch_timeout + 2 * self.database_timeout + MARGIN
        if needed > self.lock_ttl:
            yield (
                f"lock_ttl={self.lock_ttl:g} s is too short: a lease must outlast the claim"
                f" (database_timeout={self.database_timeout:g} s), the dispatch"
                f" (dispatch_timeout={self.dispatch_timeout:g} s), the completion"
                f" (database_timeout={self.database_timeout:g} s) and a margin of {MARGIN:g} s,"
                f" {needed:g} s in all; raise lock_ttl or lower the timeouts"
            )

    def _check_takeover(self) -> Iterator[str]:
        if self.single_active and self.takeover < self.database_timeout:
            yield (
                f"takeover={self.takeover:g} s is too short: a heartbeat, sent every {self.takeover / HEARTBEATS:g} s,"
                f" may take database_timeout={self.database_timeout:g} s, and so may the claim that a new leader has to"
                " wait for; raise takeover or lower database_timeout"
            )

    def _check_order(self) -> Iterator[str]:
        if self.on_dead == "block" and not self.single_active:
            yield (
                "on_dead='block' needs single_active=True: relays side by side keep no order, so no message would wait"
                " behind a dead one; set single_active=True or on_dead='skip'"
            )

    @property
    def trusted(self) -> float:
        """For how long after a claim was sent a dispatch of its rows may still start."""
        return self.lock_ttl - self.dispatch_timeout - self.database_timeout - MARGIN


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no duration: another type, less than nothing, not a number, without end."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"{name} must be a number of seconds that is not negative, got {value!r}")


def _check_type(name: str, kind: str, value: object) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "int" and (not number or not isinstance(value, int)):
        return f"{name} must be a whole number, got {value!r}"
    if kind == "float" and not number:
        return f"{name} must be a number of seconds, got {value!r}"
    if kind == "bool" and not isinstance(value, bool):
        return f"{name} must be True or False, got {value!r}"
    if isinstance(value, int | float) and (value < 0 or not math.isfinite(value)):
        return f"{name} must not be negative or infinite, got {value!r}"
    if kind in _LARGEST and isinstance(value, int | float) and value > _LARGEST[kind]:
        return f"{name} must be at most {_LARGEST[kind]}, got {value!r}"
    return None

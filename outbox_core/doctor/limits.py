"""From where on something is a finding."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is still taken for normal. Durations are seconds."""

    transaction_age: float = 300.0
    """Of a transaction, prepared ones included."""
    clock_offset: float = 1.0
    """Between this host and the database, beyond what the round trip explains."""
    dead_rows: int = 50_000
    """Row versions that wait for a vacuum, where they are also more than the live ones."""
    index_bytes: int = 64 * 2**20
    """Below this size an index is never called bloated."""
    index_growth: float = 8.0
    """How many times the size it needs an index may have."""
    connections: float = 0.9
    """The part of the server's connections that may be in use."""
    wraparound: int = 1_000_000_000
    """Transactions since the table was last frozen."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value: float = getattr(self, name)
            if not value >= 0:
                raise ConfigError(f"{name} must be 0 or more, got {value!r}")

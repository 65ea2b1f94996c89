"""The root of the tree."""

from __future__ import annotations

from typing import ClassVar


class OutboxError(Exception):
    """The root of the tree: ``except OutboxError`` catches everything this library raises on purpose."""

    code: ClassVar[str] = "UNKNOWN.ERROR"


class RelayFailed(OutboxError):
    """Raised when a relay in the background ended by an error, which is its ``__cause__``, or was stopped while it was
    being started."""

    code: ClassVar[str] = "UNKNOWN.RELAY_FAILED"

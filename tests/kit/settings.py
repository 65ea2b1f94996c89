"""Settings of a relay with short times, so that a test is over soon.

They differ where the difference matters: a real server needs longer timeouts than memory, and a takeover needs leases
that expire within the test.
"""

from __future__ import annotations

from typing import Any, Final

QUICK: Final[dict[str, Any]] = {
    "backoff_base": 0.02,
    "backoff_cap": 0.05,
    "backoff_jitter": 0.0,
    "poll_interval": 0.05,
    "dispatch_timeout": 0.2,
}
"""A relay on the store in memory."""

QUICK_POSTGRES: Final[dict[str, Any]] = QUICK | {
    "dispatch_timeout": 0.5,
    "database_timeout": 3.0,
    "lock_ttl": 8.0,
}
"""A relay on a PostgreSQL that answers. Leases outlive the test."""

QUICK_TAKEOVER: Final[dict[str, Any]] = {
    "lock_ttl": 3.0,
    "dispatch_timeout": 0.5,
    "database_timeout": 0.7,
    "takeover": 2.0,
    "poll_interval": 0.3,
    "backoff_base": 0.2,
    "backoff_cap": 0.5,
    "backoff_jitter": 0.05,
    "max_attempts": 5,
}
"""A relay that crashes, freezes or is cut off: its rows are free after 3 s, its leadership after 2 s."""

QUICK_WEB: Final[dict[str, Any]] = {"poll_interval": 0.1, "backoff_base": 0.05, "backoff_jitter": 0.0}
"""A relay inside a web application: only what must not slow a test down differs from the defaults."""

FEW_ATTEMPTS: Final[dict[str, Any]] = {
    "max_attempts": 3,
    "dispatch_timeout": 0.2,
    "backoff_base": 0.02,
    "backoff_cap": 0.05,
}
"""On top of others. Retries are over within 0.1 s: half a second of outage outlasts them all."""

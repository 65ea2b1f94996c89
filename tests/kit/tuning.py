"""The constants that tests change or compare with, by plain names: one place to edit when a constant moves."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import pytest

from outbox_core.relay.claiming.limits import ClaimLimits
from outbox_core.relay.claiming.scan import Rescan
from outbox_core.runtime import clock

CONSTANTS: Final[dict[str, tuple[str, str]]] = {
    # claiming
    "clock_check_seconds": ("outbox_core.relay.claiming.claimer", "_TICK_SECONDS"),
    "first_span": ("outbox_core.relay.claiming.limits", "_FIRST_SPAN"),
    "least_span": ("outbox_core.relay.claiming.limits", "_LEAST_SPAN"),
    "quick_claim_share": ("outbox_core.relay.claiming.limits", "_QUICK"),
    "rescan_seconds": ("outbox_core.runtime.pacing", "_LEAST_PAUSE_SECONDS"),
    "max_rescan_seconds": ("outbox_core.runtime.pacing", "MAX_PAUSE_SECONDS"),
    # ordering
    "max_held_keys_in_claim": ("outbox_core.relay.ordering.keys", "MAX_HELD_IN_CLAIM"),
    # dispatching
    "most_topics": ("outbox_core.relay.dispatching.destinations", "MOST_TOPICS"),
    "probe_seconds": ("outbox_core.relay.dispatching.destinations", "PROBE_SECONDS"),
    "opening_seconds": ("outbox_core.relay.run", "OPENING_SECONDS"),
    "targets_close_seconds": ("outbox_core.dispatchers.targets", "CLOSE_SECONDS"),
    # completing
    "deferred_retry_seconds": ("outbox_core.relay.completing.deferred", "_SLOW_RETRY_SECONDS"),
    # the HTTP server
    "http_request_seconds": ("outbox_core.integrations.http", "REQUEST_SECONDS"),
    "http_max_connections": ("outbox_core.integrations.http", "MAX_CONNECTIONS"),
    # the contract suite for dispatchers
    "contract_deadline_seconds": ("outbox_core.testing.contracts.dispatching.outages", "DEADLINE"),
    "contract_outage_messages": ("outbox_core.testing.contracts.dispatching.outages", "MESSAGES"),
    "contract_cancel_seconds": ("outbox_core.testing.contracts.dispatching.lifecycle", "CANCEL_SECONDS"),
}
"""Module and attribute of each. A constant that a module imports by name is changed where it is used."""


def constant(name: str) -> Any:
    """The present value of a constant."""
    module, attribute = CONSTANTS[name]
    return getattr(import_module(module), attribute)


def tune(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    """Change constants for the rest of the test."""
    for name, value in values.items():
        module, attribute = CONSTANTS[name]
        monkeypatch.setattr(import_module(module), attribute, value)


def begin_claims_with_span(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Limit claims to a span of ``rows`` from the start, as after claims that timed out."""
    made = ClaimLimits.__init__

    def short(self: ClaimLimits, *arguments: Any) -> None:
        made(self, *arguments)
        self.span = rows

    monkeypatch.setattr(ClaimLimits, "__init__", short)


def begin_rescans_with_span(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Limit the slices of a rescan to a span of ``rows`` from the start."""
    made = Rescan.__init__

    def in_small_slices(self: Rescan, limits: ClaimLimits) -> None:
        made(self, limits)
        limits.span = rows

    monkeypatch.setattr(Rescan, "__init__", in_small_slices)


@dataclass
class Clock:
    """The relay's monotonic clock, which goes on only when the test says so."""

    now: float = 0.0


def stop_clock(monkeypatch: pytest.MonkeyPatch, now: float = 0.0) -> Clock:
    """Stop the relay's clock for the rest of the test, which sets it by hand."""
    stopped = Clock(now)
    monkeypatch.setattr(clock, "now", lambda: stopped.now)
    return stopped

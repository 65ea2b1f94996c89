"""The constants that tests change or compare with, by plain names: one place to edit when a constant moves."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import pytest

from outbox_core.relay import clock, reach, sweep

CONSTANTS: Final[dict[str, tuple[str, str]]] = {
    # claiming
    "clock_check_seconds": ("outbox_core.relay.claimer", "_LOOK_SECONDS"),
    "first_span": ("outbox_core.relay.reach", "_FIRST_SPAN"),
    "least_span": ("outbox_core.relay.reach", "_LEAST_SPAN"),
    "quick_claim_share": ("outbox_core.relay.reach", "_QUICK"),
    "rescan_seconds": ("outbox_core.relay.wakeups", "_SWEEP_SECONDS"),
    "max_rescan_seconds": ("outbox_core.relay.wakeups", "MAX_SWEEP_SECONDS"),
    "max_slice_pause_seconds": ("outbox_core.relay.sweep", "MAX_SWEEP_SECONDS"),
    # ordering
    "max_held_keys_in_claim": ("outbox_core.relay.keys", "MAX_HELD_IN_CLAIM"),
    # dispatching
    "most_topics": ("outbox_core.relay.leaves", "MOST_TOPICS"),
    "probe_seconds": ("outbox_core.relay.leaves", "PROBE_SECONDS"),
    "opening_seconds": ("outbox_core.relay.run", "OPENING_SECONDS"),
    "targets_close_seconds": ("outbox_core.dispatchers.targets", "CLOSE_SECONDS"),
    # completing
    "deferred_retry_seconds": ("outbox_core.relay.aside", "_TRY_SECONDS"),
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
    made = reach.Reach.__init__

    def short(self: reach.Reach, *arguments: Any) -> None:
        made(self, *arguments)
        self.span = rows

    monkeypatch.setattr(reach.Reach, "__init__", short)


def begin_rescans_with_span(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Limit the slices of a rescan to a span of ``rows`` from the start."""
    made = sweep.Sweep.__init__

    def in_small_slices(self: sweep.Sweep, size: reach.Reach) -> None:
        made(self, size)
        size.span = rows

    monkeypatch.setattr(sweep.Sweep, "__init__", in_small_slices)


@dataclass
class Clock:
    """The relay's monotonic clock, which goes on only when the test says so."""

    now: float = 0.0


def stop_clock(monkeypatch: pytest.MonkeyPatch, now: float = 0.0) -> Clock:
    """Stop the relay's clock for the rest of the test, which sets it by hand."""
    stopped = Clock(now)
    monkeypatch.setattr(clock, "now", lambda: stopped.now)
    return stopped

"""What a relay of a run does to itself at a moment it was told, and how a transaction without an end is recognised."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from outbox_core.admin_store import HasAdminStore
from tests.faults.journal import Tail
from tests.faults.kinds.in_hand import in_doubt
from tests.faults.moments import Act, Moments, WatchedStore
from tests.integration.relay.journal import Journal


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[signal.Signals]:
    """What a process would have sent itself."""
    sent: list[signal.Signals] = []
    monkeypatch.setattr("os.kill", lambda _, number: sent.append(number))
    return sent


@pytest.fixture
def moments(tmp_path: Path) -> Moments:
    return Moments(Journal(tmp_path / "events"), "r1.0", 0.05)


@pytest.mark.parametrize(("act", "sent"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
def test_it_happens_once_at_the_nth_time_from_the_order_on(
    moments: Moments, signals: list[signal.Signals], tmp_path: Path, act: Act, sent: signal.Signals
) -> None:
    moments.reached("publish.before")
    moments.order("publish.before", 2, act)
    moments.reached("publish.before")
    moments.reached("publish.after")
    assert (signals, moments.expects("publish.before")) == ([], True)

    moments.reached("publish.before")
    moments.reached("publish.before")
    assert (signals, moments.expects("publish.before")) == ([sent], False)
    (line,) = Journal(tmp_path / "events").read("fault")
    assert (line["point"], line["relay"], line["act"]) == ("publish.before", "r1.0", act)


def test_an_order_can_be_taken_back(moments: Moments, signals: list[signal.Signals]) -> None:
    moments.order("claim.after", 1, "kill")
    moments.order("", 1, "kill")
    moments.reached("claim.after")
    assert signals == []


def test_blocking_keeps_the_event_loop(moments: Moments) -> None:
    moments.order("publish.before", 1, "block")
    began = time.monotonic()
    moments.reached("publish.before")
    assert time.monotonic() - began >= 0.05


def test_claims_are_counted_also_those_that_find_nothing(moments: Moments) -> None:
    for point in ("claim.before", "claim.before", "claim.after", "claim_keys.before", "publish.before"):
        moments.reached(point)
    assert moments.claims == 3


class Heard:
    """A store that has an admin store, and hints for a listener."""

    admin_store = "the store's own"

    def listen(self, tables: Any, callback: Any) -> None:
        self.callback = callback


def test_a_watched_store_counts_hints_and_keeps_its_admin_store(moments: Moments) -> None:
    store: Any = Heard()
    watched = WatchedStore(store, moments)
    passed_on: list[object] = []
    watched.listen((), passed_on.append)
    store.callback(None)
    store.callback("public.orders")
    assert (watched.hints, passed_on) == (2, [None, "public.orders"])
    assert isinstance(watched, HasAdminStore)
    assert watched.admin_store == "the store's own"


def test_only_a_transaction_without_an_end_is_in_doubt(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "history")
    world: Any = type("World", (), {"history": Tail(journal.path)})()

    def note(kind: str, writer: str, *kept: str) -> None:
        journal.write(kind, writer=writer, kept=kept, back=["s1"])

    assert in_doubt(world, "w0.0") == []
    note("invoke", "w0.0", "a")
    note("ok", "w0.0", "a")
    note("invoke", "w1.0", "b", "c")
    assert in_doubt(world, "w0.0") == []
    assert in_doubt(world, "w1.0") == ["b", "c", "s1"]
    note("info", "w1.0", "b", "c")
    assert in_doubt(world, "w1.0") == []

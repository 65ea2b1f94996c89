from __future__ import annotations

import multiprocessing
import threading
import time
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest

from outbox_core.identifiers import _generator, uuid7


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands a minute ahead; the generator forgets it afterwards, so that other tests do not see it."""
    now = time.time_ns() + 60 * 10**9
    monkeypatch.setattr("outbox_core.identifiers._generator", type(_generator)())
    monkeypatch.setattr("outbox_core.identifiers.time.time_ns", lambda: now)


def milliseconds(identifier: UUID) -> int:
    return identifier.int >> 80


def test_has_the_version_the_variant_and_the_time_of_rfc_9562() -> None:
    before = time.time_ns() // 1_000_000
    identifier = uuid7()
    after = time.time_ns() // 1_000_000

    assert identifier.version == 7
    assert identifier.variant == RFC_4122
    assert before <= milliseconds(identifier) <= after + 1


def test_increases_strictly_within_a_process() -> None:
    made = [uuid7() for _ in range(20_000)]

    assert all(earlier < later for earlier, later in pairwise(made))


def test_increases_as_text_and_as_bytes_too() -> None:
    made = [uuid7() for _ in range(1_000)]

    assert sorted(made, key=str) == made
    assert sorted(made, key=lambda identifier: identifier.bytes) == made


def test_is_unique_and_increasing_in_each_of_many_threads() -> None:
    made: list[list[UUID]] = [[] for _ in range(4)]
    start = threading.Barrier(len(made))

    def make(into: list[UUID]) -> None:
        start.wait(timeout=10)
        into.extend(uuid7() for _ in range(5_000))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert all(into == sorted(into) for into in made)
    assert len({identifier for into in made for identifier in into}) == 20_000


def test_a_clock_that_goes_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    before = uuid7()
    monkeypatch.setattr("outbox_core.identifiers.time.time_ns", lambda: now - 3_600 * 10**9)
    after = [uuid7() for _ in range(100)]

    assert before < after[0]
    assert after == sorted(set(after))


@pytest.mark.usefixtures("stopped_clock")
def test_a_millisecond_whose_numbers_are_used_up_gives_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = uuid7()
    monkeypatch.setattr("outbox_core.identifiers._generator._random", (1 << 74) - 1)
    second = uuid7()

    assert milliseconds(second) == milliseconds(first) + 1
    assert (second.version, second.variant) == (7, RFC_4122)


def _send_some(connection: multiprocessing.connection.Connection) -> None:
    connection.send([uuid7() for _ in range(100)])
    connection.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_repeats_none_of_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    # The one generator the fork hook knows, at a stopped clock: parent and child are in the same millisecond.
    now = time.time_ns()
    monkeypatch.setattr("outbox_core.identifiers.time.time_ns", lambda: now)
    last_before_fork = uuid7()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_send_some, args=(theirs,))
    child.start()
    in_parent = [uuid7() for _ in range(100)]
    assert ours.poll(timeout=30)
    in_child: list[UUID] = ours.recv()
    child.join(timeout=30)
    ours.close()
    theirs.close()

    assert not set(in_parent) & set(in_child)
    assert last_before_fork < in_child[0]
    assert in_child == sorted(set(in_child))

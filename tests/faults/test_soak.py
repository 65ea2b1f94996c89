"""What grows is found, and what only swings is not."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.journal import Line, Tail
from tests.faults.soak import BREAKS, LIMITS, OF_RELAYS, of_relays, problems, table, trends, watch


def points(*values: float) -> list[tuple[float, float]]:
    return [(10.0 * number, value) for number, value in enumerate(values)]


@pytest.mark.parametrize("name", LIMITS)
def test_what_grows_is_found(name: str) -> None:
    (trend,) = trends({name: points(*(50.0 + 20 * number for number in range(40)))}).values()
    assert not trend.good
    assert trend.per_hour == pytest.approx(7200)
    assert "GROWS" in table({name: trend})
    assert problems({name: trend})[0].startswith(f"{name} grew by ")


@pytest.mark.parametrize("name", LIMITS)
def test_what_swings_or_fills_up_at_first_does_not_grow(name: str) -> None:
    warming = [10.0 + 3 * number for number in range(12)]
    (trend,) = trends({name: points(*warming, *(50.0, 51.0) * 12)}).values()
    assert trend.good
    assert trend.mean == pytest.approx(50.5, abs=0.1)
    assert "GROWS" not in table({name: trend})


def test_one_relay_that_grows_is_not_hidden_by_another_that_shrinks() -> None:
    up, down = [50.0 + number for number in range(40)], [90.0 - number for number in range(40)]
    found = trends({"memory_mb r0.0": points(*up), "memory_mb r1.0": points(*down)})
    assert {name: trend.good for name, trend in found.items()} == {
        "memory_mb r0.0": False,
        "memory_mb r1.0": True,
    }


def test_a_slow_leak_is_found_in_an_hour() -> None:
    """Four megabytes of sixty, in an hour: more than the noise and a share."""
    leaking = [60.0 + number / 90 for number in range(360)]
    (trend,) = trends({"memory_mb r0.0": points(*leaking)}).values()
    assert not trend.good


def test_a_soak_that_is_too_short_to_warm_up_says_nothing() -> None:
    assert trends({"tasks": [(float(number), 1.0) for number in range(100)]}) == {}


def test_too_few_samples_say_nothing_which_is_a_problem() -> None:
    assert trends({"tasks": points(1.0, 2.0, 3.0), "files": []}) == {}
    assert "tasks was measured too rarely to say anything" in problems({})


def vitals(relay: str, at: float) -> Line:
    return {"kind": "vitals", "relay": relay, "at": at, **dict.fromkeys(OF_RELAYS, 5.0)}


def told(name: str, at: float) -> Line:
    return {"kind": "event", "name": name, "relay": "r0.0", "at": at}


BEGAN, ENDED = 1000.0, 1400.0
RELAYS = ["r0.0", "r1.0"]
BOTH = [vitals(relay, BEGAN + 2.0 * number) for number in range(200) for relay in RELAYS]


def wrong(lines: list[Line]) -> list[str]:
    watched = of_relays(lines, BEGAN, ENDED, RELAYS)
    others = {name: points(*[5.0] * 40) for name in LIMITS if name not in OF_RELAYS}
    return [*watched.wrong, *problems(trends({**watched.samples, **others}), watched.relays)]


def test_two_relays_that_tell_of_themselves_to_the_end_are_good() -> None:
    assert wrong(BOTH) == []
    assert of_relays(BOTH, BEGAN, ENDED, RELAYS).relays == RELAYS


def test_a_relay_of_which_nobody_ever_heard_is_a_problem() -> None:
    lines = [line for line in BOTH if line["relay"] == "r0.0"]
    assert wrong(lines) == ["r1.0 told nothing of itself at the beginning"]


def test_a_time_to_the_consumer_that_is_long_all_the_while_is_a_problem() -> None:
    found = trends({"latency_ms": points(*[20_000.0] * 40)})
    assert problems(found)[0] == "latency_ms was 20000.00 on the average, and may be 1000"


def test_a_relay_whose_vitals_stop_before_they_say_anything_is_a_problem() -> None:
    lines = [line for line in BOTH if line["relay"] == "r0.0" or line["at"] < BEGAN + 60]
    assert wrong(lines) == [
        "r1.0 told nothing of itself in the last 342 s",
        *(f"{name} r1.0 was measured too rarely to say anything" for name in OF_RELAYS),
    ]


def test_a_relay_whose_vitals_stop_later_is_a_problem_too() -> None:
    lines = [line for line in BOTH if line["relay"] == "r0.0" or line["at"] < ENDED - 60]
    assert wrong(lines) == ["r1.0 told nothing of itself in the last 62 s"]


@pytest.mark.parametrize("name", BREAKS)
def test_whatever_breaks_while_nothing_is_broken_is_a_problem(name: str) -> None:
    assert wrong([*BOTH, told(name, BEGAN + 7.5)]) == [
        f"something broke although nothing was broken: r0.0 told {name} after 7.5 s"
    ]
    assert wrong([*BOTH, told(name, BEGAN - 0.1), told(name, ENDED + 0.1), told("Published", BEGAN)]) == []


class Reading(Tail):
    """A journal that remembers which threads read it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.threads: set[int] = set()

    def lines(self) -> list[Line]:
        self.threads.add(threading.get_ident())
        return super().lines()


class NoTime:
    """A world whose plan is over at once."""

    def __init__(self, folder: Path) -> None:
        self.plan = SimpleNamespace(seconds=0.0)
        self.events, self.history, self.arrivals = (Reading(folder / name) for name in ("e", "h", "a"))
        self.consumers = [SimpleNamespace(base="live")]
        self.relays: list[Any] = []

    def admin(self) -> NoTime:
        return self

    async def __aenter__(self) -> NoTime:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def execute(self, _: str) -> None:
        pass


def test_journals_are_not_read_in_the_event_loop(tmp_path: Path) -> None:
    world: Any = NoTime(tmp_path)
    asyncio.run(watch(world))
    for journal in (world.events, world.history, world.arrivals):
        assert journal.threads
        assert threading.get_ident() not in journal.threads

"""Which faults come, without breaking anything: every kind once, then what a run is short of, by its seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.faults import nemesis
from tests.faults.aims import served, short_of, wanting
from tests.faults.journal import NotHere, NotHit, promised
from tests.faults.kinds import KINDS
from tests.faults.kinds.process import LEADER_POINTS, POINTS
from tests.faults.plan import Plan
from tests.faults.recovery import Recovery


def test_what_a_run_is_short_of() -> None:
    aims = {"kill_relay": 3, "kill_writer": 1, "points": 2}
    felt = {"kill_relay": 1, "kill_writer": 4}
    assert short_of(aims, felt, ["a", "b"], {"a": 5, "b": 1}) == {"kill_relay": 2, "points": 1}
    assert short_of(aims, {"kill_relay": 3, "kill_writer": 1}, ["a"], {"a": 2}) == {}


def test_which_kinds_bring_it_nearer() -> None:
    lacking = {"points": 4, "kill_relay": 2}
    assert wanting(lacking, [*KINDS]) == {"kill_relay": 2, "kill_relay_at_a_point": 4}
    assert wanting({"points": 1, "kill_relay_at_a_point": 3}, [*KINDS]) == {"kill_relay_at_a_point": 3}
    assert wanting(lacking, ["kill_relay"]) == {"kill_relay": 2}
    assert wanting({}, [*KINDS]) == {}


def test_an_aim_that_nothing_serves_is_an_error_and_one_of_other_kinds_is_left_out() -> None:
    assert served({"kill_relay": 1, "points": 1}, ["kill_relay"], [*KINDS]) == {"kill_relay": 1}
    with pytest.raises(ValueError, match="kill_relais"):
        served({"kill_relais": 1}, ["kill_relay"], [*KINDS])


class Calm:
    """A world in which faults do nothing but be counted."""

    def __init__(self, seed: int = 1, *, ordered: bool = True) -> None:
        self.plan = Plan(seed=seed, broker="nats", seconds=0.0, ordered=ordered)
        self.visited: Counter[str] = Counter()
        self.left = [*POINTS, *(LEADER_POINTS if ordered else ())]
        self.done: list[str] = []
        self.works = True
        self.back: float | None = None
        self.since: float | None = None

    async def until_working(self, since: float | None) -> Recovery:
        self.since = since
        return Recovery(2.0, 3.0) if self.works else Recovery(2.0, None, "r1.0 published nothing")


def fault(name: str) -> Any:
    async def happen(world: Calm) -> str:
        world.done.append(name)
        if name == "kill_relay_at_a_point" and world.left:
            world.visited[world.left.pop()] += 1
        return "felt"

    return happen


@pytest.fixture(autouse=True)
def no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemesis, "PAUSE_SECONDS", (0.0, 0.0))
    for name in KINDS:
        monkeypatch.setitem(KINDS, name, fault(name))


async def raged(world: Calm, *, kinds: list[str] | None = None, **options: Any) -> Counter[str]:
    calm: Any = world
    deeds, _ = await nemesis.rage(calm, kinds or [*KINDS], 0.0, lambda _: None, **options)
    return Counter(deed.kind for deed in deeds if deed.hit)


@pytest.mark.asyncio
async def test_a_run_goes_on_until_its_goals_are_reached() -> None:
    world = Calm()
    felt = await raged(world, goals={"kill_relay": 6, "restart_postgres": 3, "points": 1})
    assert all(felt[kind] for kind in KINDS)
    assert felt["kill_relay"] == 6
    assert felt["restart_postgres"] == 3
    assert set(world.visited) == {*POINTS, *LEADER_POINTS}
    assert felt["kill_writer"] == 1
    calm: Any = world
    assert nemesis.lacking(calm, {"kill_relay": 7, "points": 1}, [*KINDS], felt) == {"kill_relay": 1}


@pytest.mark.asyncio
async def test_the_seed_decides_the_order() -> None:
    goals = {"kill_relay": 5, "kill_writer": 5}
    runs = [Calm(seed) for seed in (3, 3, 4)]
    for world in runs:
        await raged(world, goals=goals)
    assert runs[0].done == runs[1].done != runs[2].done


@pytest.mark.asyncio
async def test_the_ceiling_ends_a_run_short_of_its_goals() -> None:
    world = Calm()
    felt = await raged(world, goals={"kill_relay": 10**9}, ceiling=0.2)
    assert 0 < felt["kill_relay"] < 10**9


@pytest.mark.asyncio
async def test_a_kind_that_cannot_be_had_ends_no_run_and_holds_up_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nowhere(world: Any) -> str:
        raise NotHere("no compiler")

    monkeypatch.setitem(KINDS, "jump_relay_clock", nowhere)
    felt = await raged(Calm(), goals={"jump_relay_clock": 2, "kill_relay": 2})
    assert (felt["jump_relay_clock"], felt["kill_relay"]) == (0, 2)


@pytest.mark.asyncio
async def test_a_kind_that_nobody_feels_is_tried_again_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def unfelt(world: Any) -> str:
        tried.append("once more")
        raise NotHit("nobody felt it")

    monkeypatch.setitem(KINDS, "cut_broker", unfelt)
    felt = await raged(Calm(), kinds=["cut_broker", "kill_relay"])
    assert (len(tried), felt["cut_broker"], felt["kill_relay"]) == (nemesis.TRIES, 0, 1)


@pytest.mark.asyncio
async def test_nothing_more_is_broken_once_nothing_works() -> None:
    world = Calm()
    world.works = False
    calm: Any = world
    (deed,), _ = await nemesis.rage(calm, [*KINDS], 0.0, lambda _: None, goals={"kill_relay": 5})
    assert len(world.done) == 1
    assert (deed.resumed, deed.recovered, deed.silent) == (2.0, None, "r1.0 published nothing")


@pytest.mark.asyncio
async def test_a_server_is_healed_when_it_is_back_unless_something_else_was_broken_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def restart(world: Calm) -> str:
        world.back = 1.0
        return "felt"

    monkeypatch.setitem(KINDS, "restart_postgres", restart)
    world = Calm()
    calm: Any = world
    (alone,), _ = await nemesis.rage(calm, ["restart_postgres"], 0.0, lambda _: None)
    assert alone.healed == 1.0
    assert world.since is not None
    assert world.since > alone.healed  # what is told until the fault has been felt does not count as work
    both, _ = await nemesis.rage(
        calm, ["restart_postgres", "cut_broker"], 0.0, lambda _: None, goals={"pairs": 1}
    )
    assert all(deed.healed > 1.0 for deed in both if deed.paired)
    assert [deed.healed for deed in both if not deed.paired].count(1.0) == 1


@pytest.mark.asyncio
async def test_pairs_are_of_the_brokers_side_and_another() -> None:
    calm: Any = Calm()
    deeds, _ = await nemesis.rage(calm, [*KINDS], 0.0, lambda _: None, goals={"pairs": 4})
    pairs = [deed.kind for deed in deeds if deed.paired]
    assert len(pairs) == 8
    assert sum(kind in nemesis.BROKER_SIDE for kind in pairs) == 4
    assert len(deeds) == len(KINDS) + 8


@pytest.mark.asyncio
async def test_pairs_of_which_one_is_not_felt_are_tried_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unfelt(world: Any) -> str:
        raise NotHit("nobody felt it")

    for kind in nemesis.BROKER_SIDE:
        monkeypatch.setitem(KINDS, kind, unfelt)
    calm: Any = Calm()
    deeds, _ = await nemesis.rage(calm, [*KINDS], 0.0, lambda _: None, goals={"pairs": 2})
    assert len([deed for deed in deeds if deed.paired]) == 2 * (2 * 2 + 2)


@pytest.mark.asyncio
async def test_what_was_promised_and_does_not_happen_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def without_takeover(world: Any) -> str:
        with promised():
            raise NotHit("no other relay took over")

    monkeypatch.setitem(KINDS, "kill_relay", without_takeover)
    calm: Any = Calm()
    (deed, *_), _ = await nemesis.rage(calm, ["kill_relay"], 0.0, lambda _: None)
    assert deed.broken_promise
    assert "no other relay took over" in deed.told

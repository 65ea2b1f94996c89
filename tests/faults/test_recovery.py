"""A relay that never works again, or too late, is found, whoever else works."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import page, report, trial
from tests.faults.journal import Tail
from tests.faults.kinds import database, network
from tests.faults.nemesis import Deed
from tests.faults.plan import Plan
from tests.faults.recovery import Recovery, promised_seconds
from tests.faults.summary import summary
from tests.faults.trial import Result, afterwards
from tests.faults.world import World

PLAN = Plan(seed=1, broker="nats", seconds=0.0, ordered=False, relays=3)
SINCE = 100.0
RELAYS = ("r0.0", "r1.0", "r2.4")


async def until_working(
    folder: Path, published: dict[str, float], *, ordered: bool = False, gone: tuple[str, ...] = ()
) -> Recovery:
    """What a world says in which these relays have published at these moments, and some are gone."""
    lines = [
        {"kind": "event", "name": "Published", "relay": relay, "at": at} for relay, at in published.items()
    ]
    (folder / "events").write_text("".join(json.dumps(line) + "\n" for line in lines))
    relays = [
        SimpleNamespace(name=name, child=object(), exit_code=-9 if name in gone else None) for name in RELAYS
    ]
    world: Any = SimpleNamespace(
        plan=replace(PLAN, ordered=ordered), relays=relays, events=Tail(folder / "events")
    )
    return await World.until_working(world, SINCE, within=0.0)


@pytest.mark.asyncio
async def test_side_by_side_every_relay_that_runs_has_to_publish_again(tmp_path: Path) -> None:
    everybody = dict.fromkeys(RELAYS, 101.0) | {"r1.0": 104.0}
    assert await until_working(tmp_path, everybody) == Recovery(101.0, 104.0)
    mute = await until_working(tmp_path, {"r0.0": 101.0, "r1.0": 99.9})
    assert (mute.resumed, mute.whole) == (101.0, None)
    assert mute.silent == "r1.0, r2.4 published nothing any more within 0 s"
    assert (await until_working(tmp_path, {"r0.0": 101.0}, gone=("r1.0", "r2.4"))).whole == 101.0
    assert (await until_working(tmp_path, everybody, gone=RELAYS)).silent.startswith("no relay is running")


@pytest.mark.asyncio
async def test_where_one_leads_any_will_do(tmp_path: Path) -> None:
    assert await until_working(tmp_path, {"r1.0": 102.0}, ordered=True) == Recovery(102.0, 102.0)
    assert (await until_working(tmp_path, {"r1.0": 99.0}, ordered=True)).silent == (
        "nobody published anything any more within 0 s"
    )


def deed(kind: str, seconds: float, **more: Any) -> Deed:
    return Deed(kind, 0.0, 1.0, 1.0 + seconds, True, "", **more)


def test_what_is_promised_follows_from_the_settings() -> None:
    settings = {"lock_ttl": 5.0, "takeover": 2.5, "backoff_cap": 1.0, "poll_interval": 0.25}
    assert promised_seconds("restart_postgres", settings) == promised_seconds("kill_postgres", settings) == 10
    assert promised_seconds("kill_relay", settings) == 17.5
    assert promised_seconds("kill_relay", settings | {"lock_ttl": 6.0}) == 19.5


@pytest.mark.parametrize(("kind", "limit"), [("kill_postgres", 10.0), ("cut_broker", 17.6)])
def test_who_works_again_too_late_fails_the_run(kind: str, limit: float) -> None:
    assert promised_seconds(kind, PLAN.settings) == pytest.approx(limit)
    words, problem = afterwards(deed(kind, limit - 0.1), PLAN.settings)
    assert (words, problem) == (f"working again {limit - 0.1:.1f} s later", "")
    words, problem = afterwards(deed(kind, limit + 0.1), PLAN.settings)
    assert words.endswith("TOO LATE")
    assert problem == f"relays worked again {limit + 0.1:.1f} s after {kind}, and have {limit:g} s for it"
    assert afterwards(deed(kind, limit + 0.1, paired=True), PLAN.settings)[1] == ""


def test_who_stays_silent_is_named() -> None:
    never = replace(deed("kill_relay", 0.0), recovered=None, silent="r1.0 published nothing any more")
    assert afterwards(never, PLAN.settings) == (
        "AFTER THAT r1.0 published nothing any more",
        "after kill_relay r1.0 published nothing any more",
    )


@pytest.mark.asyncio
async def test_a_server_is_back_when_it_was_started_and_not_when_somebody_has_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = iter(["before", "after"])

    async def started(_: object) -> str:
        return next(starts)

    class Events:
        async def until(self, *_: object, **__: object) -> list[dict[str, Any]]:
            noticed.append(time.monotonic())
            return [{"name": "Reconnecting"}]

    noticed: list[float] = []
    monkeypatch.setattr(database, "_started", started)
    world: Any = SimpleNamespace(events=Events(), back=None, postgres=SimpleNamespace(restart=lambda: None))
    began = time.monotonic()
    await database.restart_postgres(world)
    assert began <= world.back <= noticed[0]


class Line:
    """A proxy of which every answer is held, and whose clients connect anew when somebody asks for that."""

    def __init__(self) -> None:
        self.accepted, self.responses = 1, SimpleNamespace(held=5)
        self.noticed: list[float] = []

    def hold_responses(self) -> None: ...

    def pass_through(self) -> None: ...

    def reset(self) -> int:
        return 1

    async def wait_for(self, condition: Callable[[Any], bool], within: float) -> None:
        if not condition(self):
            self.noticed.append(time.monotonic())
            self.accepted += 1


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [network.reset_broker, network.reset_database])
async def test_a_connection_is_whole_when_it_was_reset_and_not_when_it_was_made_anew(
    kind: Callable[[Any], Awaitable[str]],
) -> None:
    line, relay = Line(), SimpleNamespace(name="r0.0", base="r0")

    async def until_leader() -> Any:
        return relay

    world: Any = SimpleNamespace(
        plan=PLAN,
        back=None,
        broker_proxy=line,
        relay_proxies=[line],
        proxy_of=lambda _: line,
        until_leader=until_leader,
    )
    began = time.monotonic()
    await kind(world)
    assert began <= world.back <= line.noticed[0]


def a_world(monkeypatch: pytest.MonkeyPatch, found: Recovery) -> None:
    """One in which work goes on like this at the beginning."""

    class Fake:
        postgres = broker = SimpleNamespace(name="server", version="1")

        async def until_working(self) -> Recovery:
            return found

    @asynccontextmanager
    async def opened(_: Plan) -> AsyncIterator[Fake]:
        yield Fake()

    monkeypatch.setattr(trial, "opened", opened)


@pytest.mark.asyncio
async def test_a_relay_that_never_begins_breaks_the_run_off(monkeypatch: pytest.MonkeyPatch) -> None:
    a_world(monkeypatch, Recovery(1.0, None, "r2.0 published nothing any more"))
    result = await trial.run(PLAN, ["kill_relay"], lambda _: None)
    assert result.problems == ["the run was broken off: NotHit: r2.0 published nothing any more"]


@pytest.mark.asyncio
async def test_what_came_too_late_is_among_the_problems_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rage(_: object, __: object, ___: object, tell: Callable[[Deed], None], **____: object) -> None:
        tell(deed("kill_postgres", 10.5))
        tell(deed("kill_postgres", 9.5))
        raise RuntimeError("enough")

    a_world(monkeypatch, Recovery(1.0, 1.0))
    monkeypatch.setattr(trial, "rage", rage)
    result = await trial.run(PLAN, ["kill_relay"], lambda _: None)
    assert result.problems == [
        "relays worked again 10.5 s after kill_postgres, and have 10 s for it",
        "the run was broken off: RuntimeError: enough",
    ]


@pytest.mark.parametrize(
    ("felt", "required", "problem"),
    [
        ([], "", "nothing was broken: none of the kinds can be had here (jump_relay_clock: no compiler)"),
        (["kill_relay"], "", None),
        (
            ["kill_relay"],
            "all",
            "jump_relay_clock cannot be had here, and OUTBOX_TEST_REQUIRE=all lets nothing be left out: no compiler",
        ),
    ],
)
@pytest.mark.asyncio
async def test_a_run_in_which_nothing_was_broken_or_something_required_was_not_is_not_good(
    felt: list[str], required: str, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rage(*_: object, **__: object) -> tuple[list[Deed], dict[str, str]]:
        return [deed(kind, 1.0) for kind in felt], {"jump_relay_clock": "no compiler"}

    async def enough(*_: object) -> None:
        raise RuntimeError("enough")

    a_world(monkeypatch, Recovery(1.0, 1.0))
    monkeypatch.setattr(trial, "rage", rage)
    monkeypatch.setattr(trial, "lacking", lambda *_: {})
    monkeypatch.setattr(trial, "_quiet_end", enough)
    monkeypatch.setenv("OUTBOX_TEST_REQUIRE", required)
    result = await trial.run(PLAN, ["jump_relay_clock", *felt], lambda _: None)
    end = "the run was broken off: RuntimeError: enough"
    assert result.problems == ([end] if problem is None else [problem, end])


def test_the_slowest_are_in_summary_report_and_page(tmp_path: Path) -> None:
    deeds = [
        deed("kill_relay", 2.0), deed("kill_relay", 3.25), deed("kill_postgres", 1.0),
        deed("cut_broker", 9.0, paired=True), replace(deed("lock_table", 0.0), recovered=None),
    ]  # fmt: skip
    result = Result(PLAN, 0.0, ended=1.0, deeds=deeds)
    found = summary([result, Result(PLAN, 0.0, ended=1.0)], seed=1, seconds=1.0, good=False)
    assert found["slowest_recovery_seconds"] == 3.25
    assert found["slowest_recovery_by_kind"] == {"kill_postgres": 1.0, "kill_relay": 3.25}
    assert found["recovery_limit_seconds"] == {"kill_postgres": 10.0, "kill_relay": pytest.approx(17.6)}
    assert report.figures(result)["working again, the slowest"] == "3.2 s, after kill_relay"
    assert report.figures(Result(PLAN, 0.0))["working again, the slowest"] == "none"
    record = json.loads(page.RUN.read_text(encoding="utf-8"))
    for name in ("slowest_recovery_seconds", "slowest_recovery_by_kind", "recovery_limit_seconds"):
        record.pop(name, None)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(record), encoding="utf-8")
    assert "`kill_relay` 3.25" not in page.recorded(file)
    file.write_text(json.dumps({**found, **record}), encoding="utf-8")
    assert "`kill_postgres` 1.00 of 10 s, `kill_relay` 3.25 of 17.6 s" in page.recorded(file)

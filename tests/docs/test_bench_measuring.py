"""What is measured, and what of it may be judged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import claim_cost, cleaner, latency
from benchmarks.enqueue_pgbench import pgbench_rows
from benchmarks.traps import Trap
from benchmarks.verdicts import Verdict


def claims(*milliseconds: float) -> list[claim_cost.Timed]:
    """Those of 50 ms and more by a sweep."""
    return [claim_cost.Timed(ms, ms >= 50) for ms in milliseconds]


def test_dear_sweeps_under_a_hundredth_of_the_claims_are_in_the_mean() -> None:
    """Each costs a thousand claims, and neither median nor p99 shows it."""
    trapped = [1.0] * 398 + [1000.0, 1.0]
    pair = claim_cost.Pair([(claims(*trapped), claims(*[1.0] * 399, 50.0))])
    never: Any = None
    trap = Trap("swept", 3.0, never)
    found = {each.name: each for each in pair.figures("x", trap, judged=True)}
    assert (found["claim_p50_ratio_x"].value, found["claim_p99_ratio_x"].value) == (1.0, 1.0)
    assert found["claim_mean_ratio_x"].value == pytest.approx(3.4975 / 1.1225)
    assert found["claim_mean_ratio_x"].bar == "≤ 3"
    assert found["claim_mean_clean_ms_x"].value == pytest.approx(1.1225)
    assert (found["claim_sweep_ms_x"].value, found["claim_sweep_clean_ms_x"].value) == (1000.0, 50.0)
    assert (found["claim_slowest_ms_x"].value, found["claim_slowest_ms_x"].bar) == (1000.0, "")


@pytest.mark.asyncio
async def test_claims_of_one_table_are_those_of_its_own_turns() -> None:
    """And those of its relay's start, in the first; nothing is dispatched in the other's turn."""
    side = claim_cost.Side(claim_cost.TimedStore("postgresql://nowhere"))
    message: Any = SimpleNamespace(meta=SimpleNamespace(key=claim_cost.BLOCKED))
    blocked = asyncio.ensure_future(side.dispatch(message))
    side.store.claims += claims(1.0)
    assert await side.turn(0.05) == claims(1.0)
    assert isinstance(blocked.exception(), RuntimeError)
    side.store.claims += claims(2.0)
    waiting = asyncio.ensure_future(side.dispatch(message))
    taking = asyncio.ensure_future(side.turn(0.05))
    await side.its_turn.wait()
    side.store.claims += claims(3.0)
    assert await taking == claims(3.0)
    await asyncio.wait({waiting})
    side.store.claims += claims(4.0)
    idle = asyncio.ensure_future(side.dispatch(message))
    assert (await asyncio.wait({idle}, timeout=0.05))[1] == {idle}
    idle.cancel()


@pytest.mark.parametrize(
    ("pace", "milliseconds", "verdict"),
    [
        (1000.0, 2.0, Verdict.MET),
        (900.0, 2.0, Verdict.NOT_JUDGED),
        (900.0, 20.0, Verdict.MISSED),
        (1000.0, 20.0, Verdict.MISSED),
    ],
)
def test_a_lighter_load_meets_no_bar_and_may_miss_one(
    pace: float, milliseconds: float, verdict: Verdict
) -> None:
    rounds = [latency.Stretch([milliseconds] * 100, pace)] * 3
    found = {each.name: each.verdict for each in latency._percentiles(1000, False, rounds)}
    assert found["latency_p50_ms_1000"] is found["latency_p95_ms_1000"] is verdict


def test_a_pgbench_that_broke_off_is_no_yardstick(tmp_path: Path) -> None:
    program = tmp_path / "pgbench"
    program.write_text("#!/bin/sh\necho 'tps = 0.5'\necho 'Run was aborted' >&2\nexit 2\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="Run was aborted"):
        pgbench_rows(str(program), "postgresql://nowhere", tmp_path / "script.sql", 1, one={}, batch=100)


@pytest.mark.asyncio
async def test_claims_beside_a_cleaner_are_timed_by_a_clock_finer_than_an_event_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each in the phase in which it ended, and however short not in no time."""

    async def at_once(*_: Any) -> Any:
        return None

    monkeypatch.setattr(claim_cost.PostgresStore, "claim", at_once)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1.0)
    traffic = cleaner.Traffic("postgresql://nowhere")
    claim: Any = SimpleNamespace(limit=100, since=None)
    phases: list[cleaner.Waits] = []
    for claims in (1, 2):
        phases.append(traffic.begin())
        for _ in range(claims):
            await traffic.store.claim(claim_cost.TABLE, claim)
    assert [len(each.claim) for each in phases] == [1, 2]
    assert all(0.0 < ms < 1000.0 for each in phases for ms in each.claim)

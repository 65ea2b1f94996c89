"""What the runs came to, for people and for machines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from html import escape

from tests.faults import soak
from tests.faults.matrix import Proof
from tests.faults.trial import Result

_BARS = " ▁▂▃▄▅▆▇█"
_LEFT, _WIDTH, _HEIGHT, _LANE = 190, 900, 120, 12
_SHOWN = 5
_POINT = re.compile(r" died at (\S+) ")
_STOP = re.compile(r" stopped in ([0-9.]+) s")
KILLS = ("kill_relay", "kill_relay_at_a_point", "kill_writer", "kill_postgres", "kill_broker")
"""Kinds that end processes with ``kill -9``; each counts as one, however many processes it ends."""


def table(result: Result) -> str:
    """One run in figures, and what is wrong with it."""
    verdict = result.verdict
    figures = {
        "committed": verdict.committed,
        "delivered": verdict.delivered,
        "dead": len(verdict.dead),
        "duplicates": verdict.duplicates,
        "lost": len(verdict.lost),
        "phantom": len(verdict.phantom),
        "reordered": len(verdict.reordered) if result.plan.ordered else "not promised",
        "stale writes accepted": len(verdict.stale_writes_accepted),
        "late writes refused": result.late_writes_refused,
        "rolled back": verdict.rolled_back,
        "unknown to their writer": f"{len(verdict.unknown)}, of which {verdict.unknown_committed} committed",
        "faults felt": sum(result.by_kind.values()),
    }
    lines = [f"{result.plan.name}: {'good' if result.good else 'NOT GOOD'}"]
    lines += [f"  {name:<24} {value}" for name, value in figures.items()]
    if result.trends:
        lines.append(soak.table(result.trends))
    lines += [f"  {kind} cannot be had here: {reason}" for kind, reason in result.missing.items()]
    lines += [f"  PROBLEM {problem}" for problem in result.problems]
    for name in ("lost", "phantom", "reordered", "stale_writes_accepted", "dead_unplanned", "broken_commits"):
        if ids := getattr(verdict, name):
            lines.append(f"  PROBLEM {name}: {', '.join(ids[:_SHOWN])}{' …' if len(ids) > _SHOWN else ''}")
    return "\n".join(lines)


def timeline(results: Sequence[Result]) -> str:
    """A character for each second: commits, arrivals, and a mark where something was broken."""
    lines: list[str] = []
    for result in results:
        seconds = int(result.ended - result.began) + 1
        broken = [" "] * seconds
        for deed in result.deeds:
            for second in range(int(deed.began - result.began), int(deed.healed - result.began) + 1):
                broken[min(second, seconds - 1)] = "x"
        lines += [
            f"{result.plan.name}: {seconds} s, one column a second",
            f"  commits   {_sparkline(_per_second(result.committed_at, result.began, seconds))}",
            f"  arrivals  {_sparkline(_per_second(result.arrived_at, result.began, seconds))}",
            f"  faults    {''.join(broken)}",
        ]
    return "\n".join(lines)


def summary(results: Sequence[Result], proofs: Sequence[Proof], seed: int, seconds: float, good: bool) -> str:
    """Everything in one line of JSON."""
    verdicts = [result.verdict for result in results]
    by_kind = sum((result.by_kind for result in results), Counter[str]())
    return json.dumps(
        {
            "committed": sum(verdict.committed for verdict in verdicts),
            "delivered": sum(verdict.delivered for verdict in verdicts),
            "dead": sum(len(verdict.dead) for verdict in verdicts),
            "duplicates": sum(verdict.duplicates for verdict in verdicts),
            "lost": sum(len(verdict.lost) for verdict in verdicts),
            "phantom": sum(len(verdict.phantom) for verdict in verdicts),
            "reordered": sum(len(verdict.reordered) for verdict in verdicts),
            "stale_writes_accepted": sum(len(verdict.stale_writes_accepted) for verdict in verdicts),
            "faults": by_kind.total(),
            "faults_by_kind": dict(sorted(by_kind.items())),
            "seed": seed,
            "kills": sum(by_kind[kind] for kind in KILLS),
            "postgres_restarts": by_kind["restart_postgres"] + by_kind["kill_postgres"],
            "broker_restarts": by_kind["restart_broker"] + by_kind["kill_broker"],
            "crash_points": sorted(_told(results, _POINT)),
            "slowest_stop_seconds": max(map(float, _told(results, _STOP)), default=None),
            "per_hour": {
                f"{result.plan.broker} {name}": round(trend.per_hour, 2)
                for result in results
                for name, trend in result.trends.items()
            },
            "unknown": sum(len(verdict.unknown) for verdict in verdicts),
            "late_writes_refused": sum(result.late_writes_refused for result in results),
            "brokers": sorted({result.plan.broker for result in results}),
            "problems": [problem for result in results for problem in result.problems],
            "matrix_rows_proven": sum(proof.good for proof in proofs),
            "matrix_rows": len(proofs),
            "seconds": round(seconds, 1),
            "good": good,
        }
    )


def _told(results: Sequence[Result], what: re.Pattern[str]) -> set[str]:
    """What a pattern finds in the words of faults that were felt."""
    deeds = [deed for result in results for deed in result.deeds if deed.hit]
    return {found[1] for deed in deeds if (found := what.search(deed.told))}


def plot(results: Sequence[Result]) -> str:
    """The timelines as one SVG: arrivals as an area, commits as a line, a bar for every fault in its kind's lane."""
    parts: list[str] = []
    top = 0
    for result in results:
        kinds = sorted({deed.kind for deed in result.deeds})
        parts.append(_run_plot(result, kinds, top))
        top += _HEIGHT + 60 + _LANE * len(kinds)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{top}"'
        ' font-family="sans-serif" font-size="10"><rect width="100%" height="100%" fill="white"/>'
        + "".join(parts)
        + "</svg>\n"
    )


def _run_plot(result: Result, kinds: Sequence[str], top: int) -> str:
    seconds = int(result.ended - result.began) + 1
    commits = _per_second(result.committed_at, result.began, seconds)
    arrivals = _per_second(result.arrived_at, result.began, seconds)
    highest = max(*commits, *arrivals, 1)
    base = top + 30 + _HEIGHT

    def x(moment: float) -> float:
        return round(_LEFT + moment / seconds * _WIDTH, 1)

    def points(counts: Sequence[int]) -> str:
        return " ".join(
            f"{x(at + 0.5)},{base - count / highest * _HEIGHT:.1f}" for at, count in enumerate(counts)
        )

    drawn = [
        (
            f'<text x="5" y="{top + 20}" font-size="12">{escape(result.plan.name)}: {seconds} s,'
            f" at most {highest} messages a second (area: arrivals, line: commits)</text>"
        ),
        f'<polygon points="{_LEFT},{base} {points(arrivals)} {_LEFT + _WIDTH},{base}" fill="#9cc3e6"/>',
        f'<polyline points="{points(commits)}" fill="none" stroke="#1b4f80"/>',
    ]
    for number, kind in enumerate(kinds):
        y = base + 6 + _LANE * number
        drawn.append(f'<text x="5" y="{y + 9}">{escape(kind)}</text>')
        for deed in result.deeds:
            if deed.kind == kind:
                begun, ended = x(deed.began - result.began), x(deed.healed - result.began)
                drawn.append(
                    f'<rect x="{begun}" y="{y + 1}" width="{max(ended - begun, 2):.1f}" height="{_LANE - 3}"'
                    f' fill="{"#c0392b" if deed.hit else "#bbbbbb"}"><title>{escape(deed.told)}</title></rect>'
                )
    return "".join(drawn)


def _per_second(moments: Sequence[float], began: float, seconds: int) -> list[int]:
    counts = [0] * seconds
    for moment in moments:
        if 0 <= (second := int(moment - began)) < seconds:
            counts[second] += 1
    return counts


def _sparkline(counts: Sequence[int]) -> str:
    highest = max(*counts, 1)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // highest)] for count in counts)

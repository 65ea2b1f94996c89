"""What the runs came to, for people."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults import soak
from tests.faults.plot import per_second
from tests.faults.trial import Result

_BARS = " ▁▂▃▄▅▆▇█"
_SHOWN = 5


def figures(result: Result) -> dict[str, int | str]:
    """One run in figures, by what they are called."""
    verdict = result.verdict
    return {
        "what is published is": "kept" if result.plan.on_published == "mark" else "deleted",
        "committed": verdict.committed,
        "delivered": verdict.delivered,
        "dead, as planned": len(verdict.dead) - len(verdict.dead_unplanned),
        "dead, not as planned": len(verdict.dead_unplanned),
        "duplicates": verdict.duplicates,
        "duplicates, at most": verdict.duplicates_allowed,
        "sent again, unexplained": len(verdict.unexplained),
        "lost": len(verdict.lost),
        "phantom": len(verdict.phantom),
        "reordered": len(verdict.reordered) if result.plan.ordered else "not promised",
        "altered": len(verdict.altered),
        "keys in two partitions": len(verdict.split_keys)
        if result.plan.broker == "kafka"
        else "no partitions",
        "poison delivered": len(verdict.delivered_poison),
        "not seen by a consumer": len(verdict.unseen),
        "stale writes accepted": len(verdict.stale_writes_accepted),
        "late writes refused": result.late_writes_refused,
        "attempts miscounted": len(verdict.miscounted),
        "cleaned away too early": len(verdict.cleaned_early),
        "broken commits": len(verdict.broken_commits),
        "rolled back": verdict.rolled_back,
        "unknown to their writer": f"{len(verdict.unknown)}, of which {verdict.unknown_committed} committed",
        "faults felt": sum(result.by_kind.values()),
        "stops, the slowest": f"{len(result.stops)}, {_slowest(result)}",
        "working again, the slowest": _slowest_recovery(result),
    }


def _slowest(result: Result) -> str:
    return f"{max(stop.seconds for stop in result.stops):.2f} s" if result.stops else "none"


def _slowest_recovery(result: Result) -> str:
    if not result.recoveries:
        return "none"
    kind, seconds = max(result.recoveries.items(), key=lambda each: each[1])
    return f"{seconds:.1f} s, after {kind}"


def table(result: Result) -> str:
    """One run in figures, and what is wrong with it."""
    lines = [f"{result.plan.name}: {'good' if result.good else 'NOT GOOD'}"]
    lines += [f"  {name:<26} {value}" for name, value in figures(result).items()]
    if result.trends:
        lines.append(soak.table(result.trends))
    lines += [f"  {kind} cannot be had here: {reason}" for kind, reason in result.missing.items()]
    lines += [f"  PROBLEM {problem}" for problem in result.problems]
    for name, ids in result.verdict.wrong.items():
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
            f"  commits   {_sparkline(per_second(result.committed_at, result.began, seconds))}",
            f"  arrivals  {_sparkline(per_second(result.arrived_at, result.began, seconds))}",
            f"  faults    {''.join(broken)}",
        ]
    return "\n".join(lines)


def _sparkline(counts: Sequence[int]) -> str:
    highest = max(*counts, 1)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // highest)] for count in counts)

"""The timelines of runs as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tests.faults.trial import Result

_LEFT, _WIDTH, _HEIGHT, _LANE = 190, 900, 120, 12


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
    commits = per_second(result.committed_at, result.began, seconds)
    arrivals = per_second(result.arrived_at, result.began, seconds)
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


def per_second(moments: Sequence[float], began: float, seconds: int) -> list[int]:
    """How many of these moments there are in each second of a run."""
    counts = [0] * seconds
    for moment in moments:
        if 0 <= (second := int(moment - began)) < seconds:
            counts[second] += 1
    return counts

"""Figures as bars, in SVG written by hand: small, sharp, readable on light and on dark."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from benchmarks.figures import Figure, Section

WIDTH, ROW, LABELS, RIGHT = 860, 26, 400, 110
FAR = 6.0
BAR, SPREAD, RULE = "#4078c0", "#88888a", "#c04040"


@dataclass(frozen=True)
class Plot:
    """Figures of one unit that belong side by side."""

    title: str
    figures: Sequence[Figure]


def plots(section: Section) -> list[Plot]:
    """One for each unit in which the section has two figures or more; a ratio is among its own kind."""
    units = dict.fromkeys(each.unit for each in section.figures)
    found = []
    for unit in units:
        same = [each for each in section.figures if each.unit == unit and each.value >= 0]
        if len(same) > 1:
            name = {"times": "ratios", "": "counts"}.get(unit, unit)
            found.append(Plot(f"{section.name}, {name}", same))
    return found


def draw(folder: Path, sections: Sequence[Section]) -> list[Path]:
    """An SVG for each plot; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for section in sections:
        for plot in plots(section):
            path = folder / (
                re.sub(r"[^a-z0-9]+", "-", plot.title.lower().replace("µ", "u")).strip("-") + ".svg"
            )
            path.write_text(svg(plot), encoding="utf-8")
            written.append(path)
    return written


def svg(plot: Plot) -> str:
    """A bar for each figure, a thin line from the lowest to the highest, and a mark where its bar is.

    What is far beyond the others is cut off, with its number beside it: the others would be lines.
    """
    ends = [max(each.highest, _bar(each) or 0.0) for each in plot.figures]
    largest = min(max(ends), FAR * statistics.median(ends)) or 1.0
    scale = (WIDTH - LABELS - RIGHT) / largest
    height = ROW * (len(plot.figures) + 1) + 10
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' font-family="sans-serif" font-size="12" fill="#777">'
        ),
        f'<text x="4" y="17" font-weight="bold">{escape(plot.title)}</text>',
    ]
    for number, each in enumerate(plot.figures, start=1):
        y = ROW * number + 6
        value, lowest, highest = (
            min(max(of, 0.0), largest) for of in (each.value, each.lowest, each.highest)
        )
        lines += [
            f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(_short(each.text))}</text>',
            f'<rect x="{LABELS}" y="{y}" width="{value * scale:.1f}" height="16" fill="{BAR}"/>',
            (
                f'<path d="M{LABELS + lowest * scale:.1f} {y + 8}H{LABELS + highest * scale:.1f}"'
                f' stroke="{SPREAD}" stroke-width="2"/>'
            ),
        ]
        bar = _bar(each)
        if bar is not None and bar <= largest:
            x = LABELS + bar * scale
            lines.append(f'<path d="M{x:.1f} {y - 3}v22" stroke="{RULE}" stroke-width="2"/>')
        end = LABELS + max(highest, min(bar or 0.0, largest)) * scale + 6
        cut = "… " if each.value > largest else ""
        unit = "" if each.unit == "times" else f" {each.unit}"
        lines.append(f'<text x="{end:.1f}" y="{y + 12}">{cut}{each.value:,.4g}{unit}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _bar(each: Figure) -> float | None:
    return each.at_most if each.at_least is None else each.at_least


def _short(text: str) -> str:
    return text if len(text) <= 62 else text[:61] + "…"

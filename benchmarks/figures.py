"""Measured values with their spread and their bars, and how they are shown and saved."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured value with its spread over the repeats of one run, and the bar it is held against."""

    name: str
    text: str
    value: float
    lowest: float
    highest: float
    unit: str = "times"
    at_least: float | None = None
    at_most: float | None = None
    valid: bool = True
    """False where the run cannot tell: too small, or the machine too busy for the one who holds the clock."""

    @property
    def verdict(self) -> str:
        """Empty where there is no bar."""
        if self.at_least is None and self.at_most is None:
            return ""
        if not self.valid:
            return "not judged"
        met = (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )
        return "met" if met else "**missed**"

    @property
    def bar(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"


@dataclass(frozen=True)
class Section:
    """What one benchmark found."""

    name: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()
    details: dict[str, Any] = field(default_factory=dict)
    """What else belongs in the JSON: rates of single rounds and the like."""

    def unjudged(self) -> Section:
        """Of a run too small to mean anything."""
        return replace(self, figures=[replace(each, valid=False) for each in self.figures])


def figure(name: str, text: str, values: Sequence[float], **more: Any) -> Figure:
    """The median of the repeats, with the lowest and the highest."""
    return Figure(name, text, statistics.median(values), min(values), max(values), **more)


def ratio(name: str, text: str, ours: Sequence[float], theirs: Sequence[float], **more: Any) -> Figure:
    """The median of the ratios of each round's two arms."""
    return figure(name, text, [one / other for one, other in zip(ours, theirs, strict=True)], **more)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def report(section: Section) -> str:
    """A Markdown table of the figures, the notes under it."""
    lines = [f"| {section.name} | median | lowest to highest | bar | |", "|---|---|---|---|---|"]
    lines += [
        f"| {f.text} | {shown(f.value)} {f.unit} | {shown(f.lowest)} to {shown(f.highest)} |"
        f" {f.bar} | {f.verdict} |"
        for f in section.figures
    ]
    return "\n".join([*lines, "", *(f"- {note}" for note in section.notes)])


def content(sections: Iterable[Section], **details: Any) -> dict[str, Any]:
    """What is saved as JSON.

    ``ratios`` maps the name of every ratio, and of everything else that has a bar, to its median; ``missed`` lists the
    names whose bars were not met; ``sections`` has all there is. Raises ValueError when two figures share a name.
    """
    sections = list(sections)
    figures = [each for section in sections for each in section.figures]
    names = [each.name for each in figures]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"figures of the same name: {', '.join(twice)}; each needs one of its own")
    return {
        **details,
        "ratios": {each.name: each.value for each in figures if each.unit == "times" or each.bar},
        "missed": [each.name for each in figures if each.verdict == "**missed**"],
        "sections": [asdict(section) for section in sections],
    }


def sections_of(saved: dict[str, Any]) -> list[Section]:
    """The sections of a saved run."""
    return [
        Section(**{**entry, "figures": [Figure(**each) for each in entry["figures"]]})
        for entry in saved["sections"]
    ]


def save(path: Path, saved: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(saved, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def shown(value: float) -> str:
    """A number as people read it."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"

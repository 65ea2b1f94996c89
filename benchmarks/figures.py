"""Measured values with their spread and their bars, and how they are shown and saved."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.verdicts import Verdict, judge


@dataclass(frozen=True)
class Figure:
    """One measured value with its spread over the rounds of one run, and the bar it is held against."""

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
    rounds: int = 1

    @property
    def verdict(self) -> Verdict:
        bar = _limit(self.at_least, self.at_most)
        if bar is None:
            return Verdict.NONE
        if not self.valid:
            return Verdict.NOT_JUDGED
        return judge(self.value, self.lowest, self.highest, self.rounds, bar)

    @property
    def bar(self) -> str:
        return _bar(self.at_least, self.at_most)


@dataclass(frozen=True)
class Missing:
    """A figure that a run should have and does not: something it needs was not there."""

    name: str
    text: str
    why: str
    """What was not there, and how to get it."""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bar(self) -> str:
        return _bar(self.at_least, self.at_most)


@dataclass(frozen=True)
class Section:
    """What one benchmark found."""

    name: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()
    details: dict[str, Any] = field(default_factory=dict)
    """What else belongs in the JSON: rates of single rounds and the like."""
    missing: Sequence[Missing] = ()
    run: dict[str, Any] = field(default_factory=dict)
    """When, where and how it was measured: sections of one file may come from several runs."""

    def unjudged(self) -> Section:
        """Of a run too small to mean anything."""
        return replace(self, figures=[replace(each, valid=False) for each in self.figures])


def figure(name: str, text: str, values: Sequence[float], **more: Any) -> Figure:
    """The median of the rounds, with the lowest and the highest."""
    more.setdefault("rounds", len(values))
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
    lines = [f"| {section.name} | median | lowest to highest | rounds | bar | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {f.text} | {shown(f.value)} {f.unit} | {shown(f.lowest)} to {shown(f.highest)} | {f.rounds} |"
        f" {f.bar} | {f.verdict.shown} |"
        for f in section.figures
    ]
    lines += [
        f"| {m.text} | not measured: {m.why} | | 0 | {m.bar} | {Verdict.NOT_MEASURED.shown} |"
        for m in section.missing
    ]
    return "\n".join([*lines, "", *(f"- {note}" for note in section.notes)])


def content(sections: Iterable[Section], **details: Any) -> dict[str, Any]:
    """What is saved as JSON.

    ``ratios`` maps the name of every ratio, and of everything else that has a bar, to its median; ``verdicts`` maps
    the names that have a bar to a `Verdict`; ``missed`` lists those whose median is on the wrong side, ``missing`` what
    was not measured, with the reason; ``sections`` has all there is. Raises ValueError when two figures share a name.
    """
    sections = list(sections)
    figures = [each for section in sections for each in section.figures]
    missing = [each for section in sections for each in section.missing]
    names = Counter([each.name for each in figures] + [each.name for each in missing])
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise ValueError(f"figures of the same name: {', '.join(twice)}; each needs one of its own")
    verdicts = {each.name: each.verdict for each in figures if each.bar}
    wrong = (Verdict.MISSED, Verdict.MISSED_WITHIN_SPREAD)
    return {
        **details,
        "ratios": {each.name: each.value for each in figures if each.unit == "times" or each.bar},
        "verdicts": verdicts | {each.name: Verdict.NOT_MEASURED for each in missing},
        "missed": [name for name, verdict in verdicts.items() if verdict in wrong],
        "missing": {each.name: each.why for each in missing},
        "sections": [asdict(section) for section in sections],
    }


def sections_of(saved: dict[str, Any]) -> list[Section]:
    """The sections of a saved run."""
    return [
        Section(
            **{
                **entry,
                "figures": [Figure(**each) for each in entry["figures"]],
                "missing": tuple(Missing(**each) for each in entry["missing"]),
            }
        )
        for entry in saved["sections"]
    ]


def read(path: Path) -> dict[str, Any]:
    """A saved run. Raises ValueError that says what is wrong with it when it is none."""
    try:
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sections_of(saved)
        if not isinstance(saved["failed"], dict):
            raise TypeError("`failed` is no object")
    except OSError as error:
        raise ValueError(str(error.strerror)) from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"it is not what `python -m benchmarks --json` wrote ({reason})") from None
    return saved


def save(path: Path, saved: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(saved, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def shown(value: float) -> str:
    """A number as people read it."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"


def _limit(at_least: float | None, at_most: float | None) -> tuple[float, bool] | None:
    if at_least is not None:
        return at_least, True
    return None if at_most is None else (at_most, False)


def _bar(at_least: float | None, at_most: float | None) -> str:
    limit = _limit(at_least, at_most)
    return "" if limit is None else f"{'≥' if limit[1] else '≤'} {limit[0]:g}"

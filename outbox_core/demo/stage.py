"""What the demonstration shows while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Mood: TypeAlias = Literal["calm", "broken", "mended"]


@dataclass(slots=True)
class Figures:
    """Counts so far. ``enqueued`` messages are committed; ``backlog`` of them are not published yet."""

    enqueued: int = 0
    rolled_back: int = 0
    published: int = 0
    consumed: int = 0
    duplicates: int = 0
    backlog: int = 0


def _unheard(text: str, mood: Mood) -> None:
    del text, mood


@dataclass(slots=True)
class Stage:
    """The figures, and somebody who is told what has just been broken or mended."""

    figures: Figures = field(default_factory=Figures)
    tell: Callable[[str, Mood], None] = _unheard

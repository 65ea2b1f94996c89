"""A task that takes rows to a dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox_core.store import Row


class Worker:
    """One task of an outlet. ``deadline`` counts while it has rows with the dispatcher, ``has_place`` while it may."""

    __slots__ = ("deadline", "has_place", "left_behind", "overdue", "rows", "since", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.rows: Sequence[Row] = ()
        self.since = 0.0
        self.deadline = 0.0
        self.has_place = True
        self.overdue = False
        self.left_behind = False

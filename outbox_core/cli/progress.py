"""Progress of long work: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(title: str, total: int | None) -> Generator[Callable[[int], None]]:
    """A bar on standard error while the block lasts; what it yields is told how much is done so far, in all."""
    if not sys.stderr.isatty():
        yield _unseen
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, emoji=False, highlight=False),
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def _unseen(done: int) -> None:
    del done

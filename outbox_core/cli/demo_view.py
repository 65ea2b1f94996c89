"""The demonstration as it is watched: a picture that changes on a terminal, lines in a pipe."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import anyio
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from outbox_core.cli.output import visible
from outbox_core.demo.stage import Figures, Stage

if TYPE_CHECKING:
    from rich.console import RenderableType

    from outbox_core.cli.output import Output
    from outbox_core.demo.stage import Mood

_STYLES: Final[dict[str, str]] = {"calm": "dim", "broken": "bold red", "mended": "bold green"}
_NAMES: Final = ("enqueued", "rolled back", "published", "consumed", "duplicates", "backlog")
_REFRESH: Final = 0.2
_LINE_EVERY: Final = 2.0
_EVENTS: Final = 8


class DemoView:
    """Tells a person what goes on. With ``--json`` it all goes to standard error, as lines."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._begin = 0.0
        self._events: deque[tuple[float, str, Mood]] = deque(maxlen=_EVENTS)
        self.stage = Stage(Figures(), self._tell)

    def shown(self) -> AbstractContextManager[Any]:
        """The picture stands on the terminal while the block lasts, and its last state stays there."""
        self._begin = anyio.current_time()
        if not self._output.drawn:
            return nullcontext()
        return Live(
            console=self._output.console,
            get_renderable=self._drawing,
            auto_refresh=True,
            refresh_per_second=round(1 / _REFRESH),
            vertical_overflow="visible",
        )

    async def keep_telling(self) -> None:
        """In a pipe, a line of figures from time to time, until cancelled."""
        while not self._output.drawn:
            await anyio.sleep(_LINE_EVERY)
            self._line("figures", ", ".join(f"{name} {value:,}" for name, value in self._figures()))

    def _figures(self) -> list[tuple[str, int]]:
        figures = self.stage.figures
        return [(name, getattr(figures, name.replace(" ", "_"))) for name in _NAMES]

    def _tell(self, text: str, mood: Mood) -> None:
        self._events.append((anyio.current_time() - self._begin, text, mood))
        if not self._output.drawn:
            self._line(mood, text)

    def _line(self, kind: str, text: str) -> None:
        line = f"{anyio.current_time() - self._begin:5.1f} s  {kind:<7}  {text}"
        if self._output.as_json:
            self._output.note(line)
        else:
            self._output.line(line)
            sys.stdout.flush()

    def _drawing(self) -> RenderableType:
        table = Table(expand=False, header_style="bold")
        for name in _NAMES:
            table.add_column(name, justify="right", min_width=len(name))
        table.add_row(*(f"{value:,}" for _, value in self._figures()))
        history = Text()
        for at, text, mood in self._events:
            history.append(f"{at:5.1f} s  ", style="dim")
            history.append(f"{visible(text)}\n", style=_STYLES[mood])
        history.rstrip()
        return Panel(Group(table, history), title="outbox demo", title_align="left", expand=False)

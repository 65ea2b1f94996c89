"""Showing what passes: a dispatcher that tells of each message which another has delivered."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from outbox_core.cli.output import Output, shown
from outbox_core.cli.streams import lost_output, silence
from outbox_core.dispatcher import Dispatcher, Managed, name_of

if TYPE_CHECKING:
    from outbox_core.message import DispatchedMessage

_LONGEST: Final = 160


class Tail:
    """Dispatches through ``inner`` and writes a line for each message that was acknowledged.

    When nobody reads the lines any more the process gets a SIGTERM.

    ``before`` is called with a message's topic ahead of its dispatch.
    """

    def __init__(
        self, inner: Dispatcher, output: Output, *, before: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self.name = name_of(inner)
        self._inner = inner
        self._output = output
        self._before = before

    async def __aenter__(self) -> Self:
        if isinstance(self._inner, Managed):
            await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._inner, Managed):
            await self._inner.__aexit__(kind, error, trace)

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if self._before is not None:
            await self._before(message.meta.topic)
        await self._inner.dispatch(message)
        try:
            self._output.document(_document(message))
            self._output.line(_line(message))
            sys.stdout.flush()
        except OSError as error:
            # The message was delivered. Nobody sees what passes any more: the process is told to end in order.
            if lost_output(error) is None:
                raise
            silence(sys.stdout)
            signal.raise_signal(signal.SIGTERM)


def _text(message: DispatchedMessage) -> str:
    try:
        return message.payload.decode()
    except UnicodeDecodeError:
        return f"0x{message.payload.hex()}"


def _document(message: DispatchedMessage) -> dict[str, Any]:
    meta = message.meta
    return {
        "table": meta.table,
        "topic": meta.topic,
        "event_id": meta.event_id,
        "sequence": meta.sequence,
        "key": meta.key,
        "attempts": meta.attempts,
        "payload": _text(message),
    }


def _line(message: DispatchedMessage) -> str:
    meta, text = message.meta, shown(_text(message))
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return "\t".join([meta.topic, str(meta.event_id), meta.key or "", short])

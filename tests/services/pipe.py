"""One direction of a proxied connection: bytes in order, whatever the rule in force does to them.

A `Pipe` carries one direction of one connection; a `Lane` is that direction over all connections: the rule and the
counters.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from dataclasses import dataclass, field

READ_BYTES = 65_536
BUFFER_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the bytes of one direction. The default lets them pass."""

    hold: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: float = math.inf
    cut_after: int | None = None


class Signal:
    """Wakes everyone who waits; nothing is remembered for those who come later."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


@dataclass(slots=True)
class Lane:
    """Bytes `forwarded` since the start and `held` in the proxy now, over all connections."""

    watchers: Signal = field(repr=False)
    rule: Rule = Rule()
    forwarded: int = 0
    held: int = 0
    pipes: set[Pipe] = field(default_factory=lambda: set[Pipe](), repr=False)

    def apply(self, rule: Rule) -> None:
        self.rule = rule
        for pipe in self.pipes:
            pipe.start_over()


class CutError(Exception):
    """The bytes a connection was allowed have passed."""


class Pipe:
    """One direction of one connection. Bytes wait in `_pending`; an empty chunk marks the sender's end."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._signal = Signal()
        self._pending: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._broken: OSError | None = None
        self.start_over()
        lane.pipes.add(self)

    def start_over(self) -> None:
        """Begin to follow the lane's rule."""
        self._left = self._lane.rule.cut_after
        self._next_slot = 0.0
        self._signal.fire()

    async def receive(self, reader: asyncio.StreamReader) -> None:
        chunk = b"more"
        while chunk:
            try:
                chunk = await reader.read(READ_BYTES)
            except OSError as error:
                self._broken, chunk = error, b""
            self._pending.append((time.monotonic(), chunk))
            self._count(held=len(chunk))
            while self._held >= BUFFER_BYTES:
                await self._signal.wait(None)

    async def forward(self, writer: asyncio.StreamWriter) -> None:
        while True:
            seconds = self._seconds_to_wait()
            if seconds is None or seconds > 0:
                await self._signal.wait(seconds)
                continue
            arrived, chunk = self._pending.popleft()
            if not chunk:
                break
            piece = chunk[: self._allowance()]
            if len(piece) < len(chunk):
                self._pending.appendleft((arrived, chunk[len(piece) :]))
            self._next_slot = time.monotonic() + len(piece) / self._lane.rule.bytes_per_second
            writer.write(piece)
            self._count(held=-len(piece), forwarded=len(piece))
            if self._left is not None:
                self._left -= len(piece)
            if self._left == 0:
                raise CutError
            await writer.drain()
        if self._broken is not None:
            raise self._broken
        writer.write_eof()

    def drop(self) -> None:
        """Leave the lane with what is held: the connection has ended."""
        self._lane.pipes.discard(self)
        self._pending.clear()
        self._count(held=-self._held)

    def _seconds_to_wait(self) -> float | None:
        """None means until the rule changes or bytes arrive."""
        if self._lane.rule.hold or not self._pending:
            return None
        arrived, _ = self._pending[0]
        return max(arrived + self._lane.rule.delay_seconds, self._next_slot) - time.monotonic()

    def _allowance(self) -> int:
        """How much may pass at once: a throttled direction moves in steps of about 20 ms."""
        step = READ_BYTES
        if self._lane.rule.bytes_per_second < math.inf:
            step = max(1, int(self._lane.rule.bytes_per_second / 50))
        return step if self._left is None else min(step, self._left)

    def _count(self, *, held: int, forwarded: int = 0) -> None:
        self._held += held
        self._lane.held += held
        self._lane.forwarded += forwarded
        self._signal.fire()
        self._lane.watchers.fire()

"""The cleaner: deletes what has been published, and if asked what has been dead, for long enough."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import anyio

from outbox_core.errors import ConfigError, RetentionZero, StorageError
from outbox_core.identifiers import uuid7
from outbox_core.observer import Cleaned, Event, Observer, Reconnecting, tell
from outbox_core.store import BEGINNING, Position
from outbox_core.table import TableName
from outbox_core.upkeep import Cleanable, Cleaning, Kept, Order, Sweep, Swept, Upkeep

_FIRST_BATCH: Final = 100
_SMALLEST_BATCH: Final = 10
_SHORTEST_PAUSE: Final = 0.002
_TOLD_EVERY: Final = 10.0
_LOOK_BACK_EVERY: Final = 3600.0
_logger: Final = logging.getLogger("outbox_core.cleaner")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """What is deleted when. Durations are seconds.

    ``retention`` counts from publication and bounds how long a published message can be replayed, and how long a
    repeated ``event_id`` is recognised. Dead messages stay for ever unless ``dead_retention``, which counts from
    ``dead_at``, is set.
    """

    enabled: bool = True
    interval: float = 60.0
    retention: float = 7 * 86400.0
    dead_retention: float | None = None
    batch: int = 1000
    """Rows of a delete at most."""
    batch_seconds: float = 0.05
    """What a delete is meant to take: batches shrink and grow towards it, and the pause after each is as long."""

    def __post_init__(self) -> None:
        for name in ("retention", "dead_retention"):
            value: float | None = getattr(self, name)
            if value is not None and not value > 0:
                raise RetentionZero(name, value)
        for name in ("interval", "batch", "batch_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be greater than 0, got {getattr(self, name)!r}")
        for name in ("interval", "retention", "dead_retention", "batch_seconds"):
            if not math.isfinite(getattr(self, name) or 0.0):
                raise ConfigError(f"{name} must be finite, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass has deleted so far. ``busy`` when it ended because another cleaner was at the table."""

    published: int = 0
    dead: int = 0
    busy: bool = False


class Cleaner:
    """Keeps one table small, in small batches with pauses, so that enqueue and claims never wait for it.

    A relay runs one for each of its tables. For a process of its own:

        async with PostgresUpkeep.connect(dsn, "orders_outbox") as store:
            await Cleaner(store, "orders_outbox").run()

    Any number may run: whoever finds another one at the table ends its pass and comes back after ``interval``.
    """

    def __init__(
        self,
        store: Cleaning | Kept,
        table: str | TableName,
        settings: CleanerSettings | None = None,
        *,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.table = TableName.parse(table)
        self.settings = settings or CleanerSettings()
        self._store: Cleaning | Upkeep = store.upkeep if isinstance(store, Kept) else store
        self._observers = observers
        self._limit = min(_FIRST_BATCH, self.settings.batch)
        self._places: dict[Literal["published", "dead"], Position] = {}
        self._look_back_at = -math.inf
        self._done = self._told = Pass()
        self._noted: Callable[[int], Awaitable[None]] | None = None
        self._seconds = 0.0
        self._told_at = 0.0

    async def run(self) -> None:
        """Clean every ``interval`` until cancelled. Trouble with the database ends a pass, not the cleaner."""
        while self.settings.enabled:
            try:
                await self.clean()
            except StorageError as error:
                self._observe(Reconnecting(self.table, str(error), self.settings.interval))
            await anyio.sleep(self.settings.interval)

    async def clean(
        self,
        *,
        progress: Callable[[Pass], None] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Pass:
        """One pass: delete all that is old enough now. ``progress`` is called after every batch.

        A pass that a person orders says who (``actor``) and why (``reason``), which is put on record in
        ``<table>_audit`` before the first batch, and how much was deleted after every one.
        """
        self._done = self._told = Pass()
        self._noted = await self._ordered(actor, reason)
        self._told_at = anyio.current_time()
        if self._told_at >= self._look_back_at:
            # Nothing becomes old enough behind the place, save rows that were locked or a clock that was set back.
            self._places.clear()
            self._look_back_at = self._told_at + _LOOK_BACK_EVERY
        # A dead row may have stopped blocking its key since: all of them are looked at again.
        self._places.pop("dead", None)
        settings, store = self.settings, self._store
        try:
            await self._sweep("published", store.clean_published, settings.retention, progress)
            if settings.dead_retention is not None and not self._done.busy:
                await self._sweep("dead", store.clean_dead, settings.dead_retention, progress)
        finally:
            self._tell()
        return self._done

    async def preview(self, *, limit: int = 1_000_000) -> Cleanable:
        """What `clean` would delete now, of each kind counted up to ``limit``. Nothing is changed or locked."""
        settings = self.settings
        return await self._upkeep().cleanable(
            self.table, retention=settings.retention, dead_retention=settings.dead_retention, limit=limit
        )

    def _upkeep(self) -> Upkeep:
        if isinstance(self._store, Upkeep):
            return self._store
        raise ConfigError(f"{type(self._store).__name__} can only delete: it has no preview and no audit")

    async def _ordered(
        self, actor: str | None, reason: str | None
    ) -> Callable[[int], Awaitable[None]] | None:
        """Put on record that a person has this pass made; what it gives brings the record up to date."""
        if actor is None and reason is None:
            return None
        if not (actor and actor.strip() and reason and reason.strip()):
            raise ConfigError(
                f"a pass on record needs both an actor and a reason, got {actor!r} and {reason!r}"
            )
        upkeep, settings = self._upkeep(), self.settings
        found = await self.preview()
        note = partial(
            upkeep.note_clean,
            self.table,
            Order(uuid7(), actor, reason),
            {"retention": settings.retention, "dead_retention": settings.dead_retention or 0.0},
            planned=found.published.value + found.dead.value,
        )
        await note(changed=0)
        return lambda changed: note(changed=changed)

    async def _sweep(
        self,
        kind: Literal["published", "dead"],
        clean: Callable[[TableName, Sweep], Awaitable[Swept]],
        older_than: float,
        progress: Callable[[Pass], None] | None,
    ) -> None:
        """Batch after batch, each pause as long as the delete before it."""
        while True:
            place = self._places.get(kind, BEGINNING)
            began = anyio.current_time()
            try:
                swept = await clean(self.table, Sweep(older_than, self._limit, place))
            except StorageError:
                self._limit = max(_SMALLEST_BATCH, self._limit // 4)
                raise
            took = anyio.current_time() - began
            self._note(kind, swept, took)
            if self._noted is not None:
                await self._noted(self._done.published + self._done.dead)
            if progress is not None:
                progress(self._done)
            self._places[kind] = swept.last or place
            if swept.busy or swept.complete:
                return
            await anyio.sleep(max(took, _SHORTEST_PAUSE))

    def _note(self, kind: Literal["published", "dead"], swept: Swept, took: float) -> None:
        """Count a batch, and choose the size of the next so that it takes as long as it should."""
        done = self._done
        if kind == "published":
            self._done = Pass(done.published + swept.deleted, done.dead, swept.busy)
        else:
            self._done = Pass(done.published, done.dead + swept.deleted, swept.busy)
        self._seconds += took
        if swept.deleted:
            wanted = int(swept.deleted * self.settings.batch_seconds / max(took, 1e-6))
            self._limit = min(self.settings.batch, max(_SMALLEST_BATCH, min(wanted, 2 * self._limit)))
        if anyio.current_time() - self._told_at > _TOLD_EVERY:
            self._tell()

    def _tell(self) -> None:
        published = self._done.published - self._told.published
        dead = self._done.dead - self._told.dead
        seconds, self._seconds = self._seconds, 0.0
        self._told, self._told_at = self._done, anyio.current_time()
        if published or dead:
            self._observe(Cleaned(self.table, published, dead, seconds))

    def _observe(self, event: Event) -> None:
        tell(self._observers, event, _logger)

"""The completer puts verdicts on record: in batches that form by themselves, each write fenced by its lease's token,
tried again until the database says applied or lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import (
    PermissionDenied,
    SchemaMissing,
    StorageError,
    StorageTimeout,
    StorageUnavailable,
)
from outbox_core.observer import Dead, Dispatched, Failed, LeaseLost, Published, Reconnecting, Released
from outbox_core.relay.completing.deferred import LOCK_CHECK_SECONDS, DeferredWrites
from outbox_core.relay.completing.verdict_batch import Verdict, VerdictBatch, Written
from outbox_core.runtime import clock
from outbox_core.runtime.mailbox import AutoResetEvent
from outbox_core.runtime.pacing import AdaptiveLimit
from outbox_core.store import Failure, Lease

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.relay.shared import Observers, Shared
    from outbox_core.table import TableName

ALL: Final = 1_000_000
_FEWER: Final = 4
_RETRY_SECONDS: Final = 15.0
"""After which more verdicts are tried in one write, however long that takes."""
_LOCK_WAITS: Final = 12
"""A statement waits for another session's lock a tenth of the time that it has: one that failed after nearly as long
did wait."""
_logger: Final = logging.getLogger("outbox_core.relay")
_TEMPORARY: Final = (StorageUnavailable, StorageTimeout)
_OF_ALL_ROWS: Final = (*_TEMPORARY, PermissionDenied, SchemaMissing)
"""No row is to blame for these, and a person will fix them: a right taken away by mistake, too, is granted again."""


class WriteLimit:
    """How many verdicts go into one write: all there are, until that was seen to take too long; then fewer, and more
    again when those are quick, or a while has passed: a write may always take so long here."""

    def __init__(self) -> None:
        self._limit = AdaptiveLimit(ALL, most=ALL, grow_by=_FEWER, shrink_by=_FEWER)
        self._too_long = 0.0
        self._retry_at = 0.0

    @property
    def value(self) -> int:
        return self._limit.value

    def too_many(self, count: int, seconds: float) -> None:
        """A write of ``count`` verdicts did not end within ``seconds``."""
        self._limit.shrink(count)
        self._too_long = seconds
        self._retry_at = clock.now() + _RETRY_SECONDS

    def written(self, seconds: float) -> None:
        """A batch is through, and the longest write of it took so long."""
        now = clock.now()
        if self.value < ALL and (seconds < self._too_long / _FEWER or now >= self._retry_at):
            self._limit.grow()
            self._retry_at = now + _RETRY_SECONDS


class _Turn(Enum):
    """The order of writes: the batch that gathered, then deferred writes that are due; then a round is over."""

    GATHERED = 1
    DEFERRED = 2
    END = 3


class Completer:
    """Takes verdicts from any task, writes them from one. While a write is under way the next batch gathers, so a lone
    message is recorded at once and a flood in large statements."""

    def __init__(self, table: TableName, shared: Shared) -> None:
        settings = shared.settings
        self._table = table
        self._store = shared.store
        self._backoff = shared.backoff
        self._observers = shared.observers
        self._delete = settings.on_published == "delete"
        self._restamp = not settings.single_active
        self._patience = settings.database_timeout / _LOCK_WAITS
        """A write that fails after more seconds than this has waited for something."""
        self._gathering = VerdictBatch()
        self._writing: list[VerdictBatch] = []
        """Batches that are being written, the last of them first."""
        self._began: float | None = None
        """When the present try of the batch that is being written began."""
        self._longest = 0.0
        """How long the longest write took since the last batch that gathered."""
        self._deferred = DeferredWrites(table, shared.store)
        self._turn = _Turn.GATHERED
        self._limit = WriteLimit()
        self._failures = 0
        """How many tries in a row failed for all rows."""
        self._held_up = 0
        """How many writes in a row took too long although the database answers."""
        self._added = AutoResetEvent()
        self._closed = False
        self.refusals = 0
        """How many tries in a row ended with an error that will not pass by itself, the last of them this:"""
        self.refusal: StorageError | None = None

    def publish(self, row: Delivery, seconds: float) -> None:
        """The broker has acknowledged the row, ``seconds`` after it was handed to the dispatcher."""
        batch = self._gathering
        batch.seconds.append(seconds)
        batch.published.append(row)
        if len(batch.published) == 1:
            self._added.set()

    def fail(self, verdict: Verdict) -> None:
        """The row is rescheduled or dead."""
        self._gathering.failed.append(verdict)
        self._added.set()

    def release(self, rows: Sequence[Delivery], reason: str) -> None:
        """The rows go back undispatched."""
        if rows:
            self._gathering.released.extend(rows)
            self._gathering.reasons.add(reason)
            self._added.set()

    def close(self) -> None:
        """Write what there is, and then end."""
        self._closed = True
        self._added.set()

    async def step(self) -> Written | None:
        """One statement or one wait; None when it is closed and empty. A failure of the database is waited for, and the
        same batch tried again. A step that dies of another error leaves the rows it was at to their leases."""
        if not self._writing and not await self._fill():
            return None
        if not self._writing:
            return Written(deferred=self._deferred.changed())
        try:
            return await self._write()
        except BaseException:
            self._writing.clear()
            self._began = None
            raise

    async def _fill(self) -> bool:
        """Take what has to be written next, or wait for it; false when there will be no more."""
        if self._longest:
            self._limit.written(self._longest)
            self._longest = 0.0
        if self._turn is _Turn.DEFERRED:
            self._turn = _Turn.END
            if self._deferred:
                due = await self._deferred.due(stopping=self._closed)
                self._writing.extend(batch for batch in reversed(due) if batch)
                if self._deferred.has_slow_due and not self._closed:
                    self._added.set()
                if self._writing:
                    return True
        if self._turn is _Turn.END:
            self._turn = _Turn.GATHERED
            if self._closed and not self._gathering:
                return False
        with anyio.move_on_after(LOCK_CHECK_SECONDS if self._deferred else inf):
            await self._added.wait()
        batch, self._gathering = self._gathering, VerdictBatch()
        if batch.seconds:
            metas = [row.message.meta for row in batch.published]
            self._observers.notify(Dispatched(self._table, metas, batch.seconds))
            batch.seconds = []
        if batch:
            self._writing.append(batch)
        self._turn = _Turn.DEFERRED
        return True

    async def _write(self) -> Written:
        """Write one kind of verdict of the batch that is next."""
        batch = self._writing[-1]
        if rest := batch.beyond(self._limit.value):
            self._writing.insert(-1, rest)
        if self._began is None:
            self._began = clock.now()
        try:
            if batch.published:
                written = await self._write_published(batch)
            elif batch.failed:
                written = await self._write_failed(batch)
            else:
                written = await self._write_released(batch)
        except _OF_ALL_ROWS as error:
            await self._failed(batch, error)
        except StorageError as error:
            self._began = None
            self._writing.pop()
            if len(batch) == 1 and not batch.spell_out():
                return self._abandon(batch, error)
            self._writing.extend(reversed(list(batch.one_by_one())))
        else:
            if not batch:
                self._writing.pop()
                self.refusals = self._failures = self._held_up = 0
                self._longest = max(self._longest, clock.now() - self._began)
                self._began = None
            return written
        return Written(deferred=self._deferred.changed())

    async def _failed(self, batch: VerdictBatch, error: StorageError) -> None:
        """The database did not take a batch: try another one, or the same after a while."""
        seconds, self._began = clock.now() - (self._began or 0.0), None
        batch.unsure = True
        self._failures += 1
        if not await self._makes_way(batch, error, seconds):
            await self._back_off(error)
        if not batch:  # all of it is deferred, which says nothing about the next
            self._writing.pop()
            self._failures = 0

    async def _makes_way(self, batch: VerdictBatch, error: StorageError, seconds: float) -> bool:
        """True when a batch that was not written is another one now: without rows that hold up others, or smaller."""
        found = await self._deferred.defer_locked(batch)
        held_up = found is False and isinstance(error, _TEMPORARY) and seconds >= self._patience
        self._held_up = self._held_up + 1 if held_up else 0
        if not held_up:
            return bool(found)
        # The database answers: there is one row that takes too long, or they do together.
        if len(batch) > 1:
            self._limit.too_many(len(batch), seconds)
            _logger.warning(
                "%s: %d outcomes were not recorded in %.1f s: %s; no more than %d are written at a time now",
                self._table, len(batch), seconds, error, self._limit.value,
            )  # fmt: skip
            return True
        # The first time the database may have been unavailable, and have come back just now.
        if not ((batch.slow or self._held_up > 1) and self._deferred.defer_slow(batch, error)):
            return False
        self._held_up = 0
        return True

    async def _back_off(self, error: StorageError) -> None:
        self.refusals = 0 if isinstance(error, _TEMPORARY) else self.refusals + 1
        self.refusal = error
        delay = self._backoff.pause(self._failures)
        self._observers.notify(Reconnecting(self._table, str(error), delay))
        await anyio.sleep(delay)

    def _abandon(self, batch: VerdictBatch, error: StorageError) -> Written:
        """The database refuses to record this one row's verdict, and always will: it must not hold up the others."""
        self._failures = 0
        for row in batch.rows:
            _logger.error(
                "%s: the outcome of message %s (topic %s) cannot be recorded: %s;"
                " its lease will end and it will be dispatched again",
                self._table,
                row.message.meta.event_id,
                row.message.meta.topic,
                error,
            )
        return Written(rows=batch.rows, abandoned=batch.rows, deferred=self._deferred.changed())

    async def _write_published(self, batch: VerdictBatch) -> Written:
        rows = batch.published
        metas = [row.message.meta for row in rows]
        leases = [(row.id, row.token) for row in rows]  # for speed: every message comes here
        lost = await self._store.publish(self._table, leases, delete=self._delete)
        if lost:
            if batch.unsure:
                lost -= await self._published_before([row for row in rows if row.lease in lost])
            metas = [row.message.meta for row in rows if row.lease not in lost]
        batch.published = []
        report_lost(self._table, rows, lost, "publish", self._observers)
        if metas:
            self._observers.notify(Published(self._table, metas))
        return Written(rows=rows, deferred=self._deferred.changed())

    async def _write_failed(self, batch: VerdictBatch) -> Written:
        verdicts = batch.failed
        rows = [verdict.row for verdict in verdicts]
        lost = await self._store.fail(
            self._table,
            [Failure(v.row.id, v.row.token, v.error, v.delay, v.refund, v.dead) for v in verdicts],
        )
        if lost and batch.unsure:
            lost -= await self._dead_before([v for v in verdicts if v.dead and v.row.lease in lost])
        batch.failed = []
        report_lost(self._table, rows, lost, "fail", self._observers)
        for verdict in verdicts:
            if verdict.row.lease in lost:
                continue
            meta = verdict.row.message.meta
            if verdict.dead:
                self._observers.notify(Dead(self._table, meta, verdict.error, verdict.seconds))
            else:
                charged = not verdict.refund
                self._observers.notify(
                    Failed(self._table, meta, verdict.error, verdict.delay, charged, verdict.seconds)
                )
        return Written(rows=rows, deferred=self._deferred.changed())

    async def _write_released(self, batch: VerdictBatch) -> Written:
        rows = batch.released
        lost = await self._store.release(self._table, [row.lease for row in rows], restamp=self._restamp)
        batch.released = []
        report_lost(self._table, rows, lost, "release", self._observers)
        if len(lost) < len(rows):
            reasons = ", ".join(sorted(batch.reasons))
            self._observers.notify(Released(self._table, len(rows) - len(lost), reasons))
        return Written(rows=rows, released=rows, deferred=self._deferred.changed())

    async def _published_before(self, rows: Sequence[Delivery]) -> set[Lease]:
        """Those that an earlier try of this write has published, the answer to which was lost.

        Another owner's lease would have counted a further attempt. Of what is deleted nothing can be said."""
        ended = await self._store.resolutions(self._table, [row.id for row in rows])
        before: set[Lease] = set()
        for row in rows:
            end, meta = ended.get(row.id), row.message.meta
            if (
                end is not None
                and end.published
                and (end.attempts, end.replays) == (meta.attempts, meta.replays)
            ):
                before.add(row.lease)
        return before

    async def _dead_before(self, verdicts: Sequence[Verdict]) -> set[Lease]:
        """The same for rows that were dead-lettered. What was rescheduled, or released, may be any relay's by now."""
        ended = await self._store.resolutions(self._table, [verdict.row.id for verdict in verdicts])
        before: set[Lease] = set()
        for verdict in verdicts:
            end, meta = ended.get(verdict.row.id), verdict.row.message.meta
            mine = (False, meta.attempts - verdict.refund, meta.replays, verdict.error)
            if end is not None and (end.published, end.attempts, end.replays, end.error) == mine:
                before.add(verdict.row.lease)
        return before


def report_lost(
    table: TableName, rows: Sequence[Delivery], lost: set[Lease], write: str, observers: Observers
) -> None:
    """Report the rows to which a write did nothing, because their leases were another owner's by then."""
    if not lost:
        return
    for row in rows:
        if row.lease in lost:
            observers.notify(LeaseLost(table, row.message.meta, write))

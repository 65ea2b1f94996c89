"""Putting outcomes on record: in batches that form by themselves, each write fenced by its lease's token, tried again
until the database says applied or lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
from outbox_core.relay import clock
from outbox_core.relay.aside import LOOK_SECONDS, Aside
from outbox_core.relay.outcomes import Outcomes, Verdict
from outbox_core.relay.portions import Portions
from outbox_core.store import Failure, Lease, Store

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.relay.backoff import Backoff
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.table import TableName

_logger: Final = logging.getLogger("outbox_core.relay")
_FOR_A_WHILE: Final = (StorageUnavailable, StorageTimeout)
_OF_ALL_ROWS: Final = (*_FOR_A_WHILE, PermissionDenied, SchemaMissing)
"""What no row is to blame for, and somebody will mend: a right taken away by mistake, too, is given back."""


class Completer:
    """Takes outcomes from any task, writes them from one. While a write is under way the next batch gathers, so a lone
    message is recorded at once and a flood in large statements."""

    def __init__(
        self,
        table: TableName,
        store: Store,
        *,
        delete: bool,
        restamp: bool,
        patience: float,
        backoff: Backoff,
        observe: Callable[[Event], None],
        resolved: Callable[[Sequence[Delivery]], None],
        abandoned: Callable[[Sequence[Delivery]], None],
        released: Callable[[Sequence[Delivery]], None],
        returning: Callable[[Sequence[Delivery]], None],
        set_aside: Callable[[Sequence[Delivery]], None],
    ) -> None:
        """A write that fails after ``patience`` seconds has waited for something.

        ``returning`` is told of rows at once, before anything is written, that are to leave the hand unresolved, or
        may; ``released`` of those that were given back, ``abandoned`` of those that are left to the end of their
        leases, ``resolved`` of all others that are in hand no longer, and ``set_aside`` of all whose outcomes wait so
        that others need not."""
        self._table = table
        self._store = store
        self._delete = delete
        self._restamp = restamp
        self._backoff = backoff
        self._observe = observe
        self._resolved = resolved
        self._abandoned = abandoned
        self._released = released
        self._returning = returning
        self._batch = Outcomes()
        self._aside = Aside(table, store, set_aside)
        self._portions = Portions()
        self._patience = patience
        self._held_up = 0
        """How many writes in a row took too long although the database answers."""
        self._added = anyio.Event()
        self._ended = False
        self.refusals = 0
        """How many tries in a row ended with an error that will not pass by itself, the last of them this:"""
        self.refusal: StorageError | None = None

    def publish(self, row: Delivery, seconds: float) -> None:
        """The broker has acknowledged the row, so many seconds after it was handed to the dispatcher."""
        batch = self._batch
        batch.seconds.append(seconds)
        batch.published.append(row)
        if len(batch.published) == 1:
            self._added.set()

    def fail(self, verdict: Verdict) -> None:
        """The row is put off or given up."""
        self._returning((verdict.row,))
        self._batch.failed.append(verdict)
        self._added.set()

    def release(self, rows: Sequence[Delivery], reason: str) -> None:
        """The rows go back undispatched."""
        if rows:
            self._returning(rows)
            self._batch.released.extend(rows)
            self._batch.reasons.add(reason)
            self._added.set()

    def end(self) -> None:
        """Write what is there, then stop."""
        self._ended = True
        self._added.set()

    async def run(self) -> None:
        """Write batches until `end`; at a failure of the database wait and try the same batch again."""
        while True:
            with anyio.move_on_after(LOOK_SECONDS if self._aside else inf):
                await self._added.wait()
            self._added = anyio.Event()
            batch, self._batch = self._batch, Outcomes()
            await self._write(batch)
            if self._aside:
                for again in await self._aside.in_turn(stopping=self._ended):
                    await self._write(again)
                if self._aside.is_due and not self._ended:
                    self._added.set()
            if self._ended and not self._batch:
                return

    async def _write(self, batch: Outcomes) -> None:
        if batch.seconds:
            metas = [row.message.meta for row in batch.published]
            self._observe(Dispatched(self._table, metas, batch.seconds))
            batch.seconds = []
        failures, longest = 0, 0.0
        while batch:
            rest, began = batch.beyond(self._portions.most), clock.now()
            try:
                await self._write_published(batch)
                await self._write_failed(batch)
                await self._write_released(batch)
                self.refusals = failures = self._held_up = 0
                longest = max(longest, clock.now() - began)
            except _OF_ALL_ROWS as error:
                batch.unsure = True
                failures += 1
                if not await self._passed(batch, error, clock.now() - began):
                    await self._bear(error, failures)
                batch.add(rest)
                continue
            except StorageError as error:
                if len(batch) == 1 and not batch.spell_out():
                    self._give_up(batch, error)
                else:
                    for alone in batch.apart():
                        await self._write(alone)
            batch = rest
        if longest:
            self._portions.written(longest)

    async def _passed(self, batch: Outcomes, error: StorageError, seconds: float) -> bool:
        """Whether a batch that was not written is another one now: without rows that keep the others, or smaller."""
        found = await self._aside.take_locked(batch)
        held_up = found is False and isinstance(error, _FOR_A_WHILE) and seconds >= self._patience
        self._held_up = self._held_up + 1 if held_up else 0
        if not held_up:
            return bool(found)
        # The database answers: there is one row that takes too long, or they do together.
        if len(batch) > 1:
            self._portions.too_many(len(batch), seconds)
            _logger.warning(
                "%s: %d outcomes were not recorded in %.1f s: %s; no more than %d are written at a time now",
                self._table, len(batch), seconds, error, self._portions.most,
            )  # fmt: skip
            return True
        # The first time the database may have been away, and have come back just now.
        if not ((batch.slow or self._held_up > 1) and self._aside.take_slow(batch, error)):
            return False
        self._held_up = 0
        return True

    async def _bear(self, error: StorageError, failures: int) -> None:
        self.refusals = 0 if isinstance(error, _FOR_A_WHILE) else self.refusals + 1
        self.refusal = error
        delay = self._backoff.pause(failures)
        self._observe(Reconnecting(self._table, str(error), delay))
        await anyio.sleep(delay)

    def _give_up(self, batch: Outcomes, error: StorageError) -> None:
        """The database refuses to record this one row's outcome, and always will: it must not keep the others."""
        for row in batch.rows:
            _logger.error(
                "%s: the outcome of message %s (topic %s) cannot be recorded: %s;"
                " its lease will end and it will be dispatched again",
                self._table,
                row.message.meta.event_id,
                row.message.meta.topic,
                error,
            )
        self._returning(batch.rows)
        self._abandoned(batch.rows)

    async def _write_published(self, batch: Outcomes) -> None:
        if not batch.published:
            return
        rows = batch.published
        metas = [row.message.meta for row in rows]
        leases = [(row.id, row.token) for row in rows]  # for speed: every message comes here
        lost = await self._store.publish(self._table, leases, delete=self._delete)
        if lost:
            if batch.unsure:
                lost -= await self._published_before([row for row in rows if row.lease in lost])
            metas = [row.message.meta for row in rows if row.lease not in lost]
        batch.published = []
        report_lost(self._table, rows, lost, "publish", self._observe)
        if metas:
            self._observe(Published(self._table, metas))
        self._resolved(rows)

    async def _write_failed(self, batch: Outcomes) -> None:
        if not batch.failed:
            return
        verdicts = batch.failed
        lost = await self._store.fail(
            self._table,
            [Failure(v.row.id, v.row.token, v.error, v.delay, v.refund, v.dead) for v in verdicts],
        )
        if lost and batch.unsure:
            lost -= await self._dead_before([v for v in verdicts if v.dead and v.row.lease in lost])
        batch.failed = []
        report_lost(self._table, [verdict.row for verdict in verdicts], lost, "fail", self._observe)
        for verdict in verdicts:
            if verdict.row.lease in lost:
                continue
            meta = verdict.row.message.meta
            if verdict.dead:
                self._observe(Dead(self._table, meta, verdict.error, verdict.seconds))
            else:
                self._observe(
                    Failed(
                        self._table, meta, verdict.error, verdict.delay, not verdict.refund, verdict.seconds
                    )
                )
        self._resolved([verdict.row for verdict in verdicts])

    async def _write_released(self, batch: Outcomes) -> None:
        if not batch.released:
            return
        rows = batch.released
        lost = await self._store.release(self._table, [row.lease for row in rows], restamp=self._restamp)
        batch.released = []
        report_lost(self._table, rows, lost, "release", self._observe)
        if len(lost) < len(rows):
            self._observe(Released(self._table, len(rows) - len(lost), ", ".join(sorted(batch.reasons))))
        self._released(rows)
        self._resolved(rows)

    async def _published_before(self, rows: Sequence[Delivery]) -> set[Lease]:
        """Those that an earlier try of this write has published, the answer to which was lost.

        Another owner's lease would have counted a further attempt. What is deleted cannot be told."""
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
        """The same for rows that were given up. What was put off, or given back, may be anybody's by now."""
        ended = await self._store.resolutions(self._table, [verdict.row.id for verdict in verdicts])
        before: set[Lease] = set()
        for verdict in verdicts:
            end, meta = ended.get(verdict.row.id), verdict.row.message.meta
            mine = (False, meta.attempts - verdict.refund, meta.replays, verdict.error)
            if end is not None and (end.published, end.attempts, end.replays, end.error) == mine:
                before.add(verdict.row.lease)
        return before


def report_lost(
    table: TableName, rows: Sequence[Delivery], lost: set[Lease], write: str, observe: Callable[[Event], None]
) -> None:
    """Tell of the rows to which a write did nothing, because their leases were somebody else's by then."""
    if not lost:
        return
    for row in rows:
        if row.lease in lost:
            observe(LeaseLost(table, row.message.meta, write))

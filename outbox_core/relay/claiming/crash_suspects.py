"""Crash suspects: rows that may have taken a relay down. Their lease ended without an outcome, and not for the first
time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from outbox_core.store import KeyId, Predecessor

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Batch, Delivery

_CAUTION_ATTEMPTS: Final = 3
"""From this attempt on, a row whose lease was lost before is dispatched alone."""


def suspect_in(batch: Batch, max_attempts: int) -> Delivery | None:
    """The first row of a batch that has to be dispatched alone, if there is one."""
    return next((row for row in batch.deliveries() if _is_suspect(row, max_attempts)), None)


def single_out(batch: Batch, suspect: Delivery) -> list[Delivery]:
    """Keep the suspect alone; the rows that came with it, which have to go back.

    What of those comes before it in its key is no longer in flight then, and hides.
    """
    if batch.count == 1:
        return []
    others = [row for row in batch.deliveries() if row is not suspect]
    return batch.keep(suspect, _before(suspect, others))


def _is_suspect(row: Delivery, max_attempts: int) -> bool:
    return row.recovered and row.message.meta.attempts >= min(_CAUTION_ATTEMPTS, max_attempts)


def _before(suspect: Delivery, others: Sequence[Delivery]) -> dict[KeyId, Predecessor]:
    if suspect.key_id is None:
        return {}
    of_its_key = [row.message.meta for row in others if row.key_id == suspect.key_id]
    earlier = [meta.sequence for meta in of_its_key if not meta.replays]
    first = min(earlier, default=suspect.message.meta.sequence)
    return {suspect.key_id: Predecessor(first, 0.0)} if first < suspect.message.meta.sequence else {}

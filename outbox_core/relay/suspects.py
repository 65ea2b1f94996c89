"""Rows that may have taken a relay down: their lease ended without an outcome, and not for the first time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outbox_core.store import KeyId, Leased, Predecessor, Row

_CAUTION_ATTEMPTS: Final = 3
"""From this attempt on, a row whose lease was lost before is dispatched alone."""


def has_suspects(leased: Leased, max_attempts: int) -> bool:
    """Whether one of the rows is to be dispatched alone."""
    return any(_is_suspect(row, max_attempts) for row in leased.rows())


def singled_out(leased: Leased, max_attempts: int) -> tuple[Leased, list[Row]]:
    """One suspect without the rows that came with it, and those, which are to go back; without a suspect, all of them.

    What of the others comes before it in its key is no longer in hand then, and hides.
    """
    rows = leased.rows()
    suspect = next((row for row in rows if _is_suspect(row, max_attempts)), None)
    if suspect is None or len(rows) == 1:
        return leased, []
    others = [row for row in rows if row is not suspect]
    return Leased.of([suspect], {**leased.hidden, **_before(suspect, others)}), others


def _is_suspect(row: Row, max_attempts: int) -> bool:
    return row.recovered and row.message.meta.attempts >= min(_CAUTION_ATTEMPTS, max_attempts)


def _before(suspect: Row, others: Sequence[Row]) -> dict[KeyId, Predecessor]:
    if suspect.key_id is None:
        return {}
    of_its_key = [row.message.meta for row in others if row.key_id == suspect.key_id]
    earlier = [meta.sequence for meta in of_its_key if not meta.replays]
    first = min(earlier, default=suspect.message.meta.sequence)
    return {suspect.key_id: Predecessor(first, 0.0)} if first < suspect.message.meta.sequence else {}

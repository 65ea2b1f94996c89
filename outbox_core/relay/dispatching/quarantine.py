"""Poison messages: which row drives a broker away, and who tries a destination next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.store import RowId

OPENINGS_OF_A_SUSPECT: Final = 3
_MAX_ROWS: Final = 10_000
_YIELDING_SECONDS: Final = 0.1
"""For which a table whose trial failed leaves the next one to another table."""


class Quarantine:
    """All that a destination knows of rows that may be to blame for its outages.

        witness     dispatching when the breaker opened; once per lease
          │ confirmed: the broker was there after all (a probe or a message was acknowledged)
        suspicion   counted per row
          │ at the third
        suspect     goes alone, and is charged for what it does
          │ resolved
        forgotten

    A broker that is really unavailable confirms nothing, so that an outage makes no suspects.
    """

    def __init__(self) -> None:
        self.alone: Delivery | None = None
        """The suspect that is with the dispatcher, or waits for all others to be gone."""
        self.has_suspicions = False
        self._suspicions: Counter[RowId] = Counter()
        self._witnesses: frozenset[RowId] = frozenset()
        self._witnessed: dict[RowId, UUID] = {}
        """Rows that have seen an opening, each with the token it had then."""
        self._failed_trial_of: str | None = None
        """The table whose message was the last to try in a failed trial."""
        self._yields_until = 0.0

    def opened(self, present: Sequence[Delivery], *, same_outage: bool) -> None:
        """The breaker opened while these rows were dispatching. After a half-open trial without an answered probe it is
        the same outage as before, and who was there then may be its cause."""
        if len(self._witnessed) > _MAX_ROWS:
            self._witnessed.clear()
        new = [row for row in present if self._witnessed.get(row.id) != row.token]
        self._witnessed.update((row.id, row.token) for row in new)
        seen = frozenset(row.id for row in new)
        self._witnesses = self._witnesses | seen if same_outage else seen

    def confirmed(self) -> None:
        """The broker was there after all: a suspicion for each witness."""
        if len(self._suspicions) > _MAX_ROWS:
            self._suspicions.clear()
        self._suspicions.update(self._witnesses)
        self._witnesses = frozenset()
        self.has_suspicions = bool(self._suspicions)

    def suspicions_of(self, row_id: RowId) -> int:
        """How often a row was there when the broker seemed to be unavailable and was not."""
        return self._suspicions[row_id]

    def is_suspect(self, row_id: RowId) -> bool:
        """True when a row goes alone, and what it does is charged to it."""
        return self._suspicions[row_id] >= OPENINGS_OF_A_SUSPECT

    def forget(self, row_id: RowId) -> None:
        """The row is resolved."""
        self._suspicions.pop(row_id, None)
        self.has_suspicions = bool(self._suspicions)

    def let_go(self, rows: Iterable[Delivery]) -> bool:
        """These rows are not with the dispatcher and do not go there now. True when one of them had to go alone."""
        alone = self.alone
        if alone is not None and any(row is alone for row in rows):
            self.alone = None
            return True
        return False

    def trial_failed(self, table: str) -> None:
        """The message that tried the destination was of this table: the next trial is another's, if one wants it."""
        self._failed_trial_of = table

    def half_opened(self, now: float, *, is_shared: bool) -> float:
        """A trial may begin; the seconds for which the table whose trial failed leaves it to others."""
        yields = _YIELDING_SECONDS if is_shared and self._failed_trial_of is not None else 0.0
        self._yields_until = now + yields if yields else 0.0
        return yields

    def closed(self) -> None:
        """The outage is over."""
        self._failed_trial_of = None

    def yields(self, table: str, now: float) -> bool:
        """True when a table leaves the trial to another one now."""
        return now < self._yields_until and table == self._failed_trial_of

"""The outcome of a plan that was carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox_core.letters import AuditRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """``record`` is the audit's, for the plan as a whole; ``changed_now`` counts what this call, or another one working
    on the same plan at the same time, changed of it."""

    record: AuditRecord
    changed_now: int

    @property
    def changed(self) -> int:
        """Messages changed in all."""
        return self.record.changed

    @property
    def skipped(self) -> int:
        """Planned messages that had moved on and were left alone."""
        return self.record.skipped

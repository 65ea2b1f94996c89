"""The account at the end: does every committed order have its event, once, and no other?"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Event ids from four independent places: the service's own memory, its orders in the database, the outbox and the
    consumer's effects. ``duplicates`` counts deliveries that a consumer recognised and dropped, which are to be
    expected; ``dead`` counts messages that were given up, which are not."""

    acknowledged: AbstractSet[UUID]
    """What the service was told is committed."""
    rolled_back: AbstractSet[UUID]
    """What the service has enqueued and rolled back."""
    committed: AbstractSet[UUID]
    """The orders in the database."""
    published: AbstractSet[UUID]
    """The outbox rows on record as acknowledged by the broker."""
    consumed: AbstractSet[UUID]
    """What the consumer has acted upon."""
    duplicates: int = 0
    dead: int = 0

    @property
    def rolled_back_seen(self) -> int:
        """Rolled-back messages that were published or consumed all the same."""
        return len(self.rolled_back & (self.published | self.consumed))

    @property
    def problems(self) -> list[str]:
        """What is off, in words; empty when the account is in order."""
        checks = (
            (not self.committed, "no order was committed, so nothing was shown"),
            (not self.rolled_back, "no order was rolled back, so nothing was shown of that"),
            *_differences(
                "committed orders of which the service does not know", self.committed, self.acknowledged
            ),
            *_differences("orders lost after their commit", self.acknowledged, self.committed),
            *_differences("committed and not published", self.committed, self.published),
            *_differences("published without a committed order", self.published, self.committed),
            *_differences("committed and not consumed", self.committed, self.consumed),
            *_differences("consumed without a committed order", self.consumed, self.committed),
            (bool(self.rolled_back_seen), f"rolled back and seen all the same: {self.rolled_back_seen}"),
            (bool(self.dead), f"given up as dead: {self.dead}"),
        )
        return [text for off, text in checks if off]

    @property
    def balanced(self) -> bool:
        """Whether committed = published = consumed and nothing that was rolled back was seen."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """The account for JSON."""
        return {
            "committed": len(self.committed),
            "published": len(self.published),
            "consumed": len(self.consumed),
            "duplicates": self.duplicates,
            "rolled_back": len(self.rolled_back),
            "rolled_back_seen": self.rolled_back_seen,
            "dead": self.dead,
            "balanced": self.balanced,
            "problems": self.problems,
        }


def _differences(what: str, have: AbstractSet[UUID], without: AbstractSet[UUID]) -> list[tuple[bool, str]]:
    found = sorted(have - without)
    return [(True, f"{what}: {len(found)}, such as {found[0]}")] if found else []

"""The lanes of a relay, one for each table, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outbox_core.relay.budget import Budget
from outbox_core.relay.lane import Lane

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.relay.backoff import Backoff
    from outbox_core.relay.leaves import Leaves
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import Store
    from outbox_core.table import TableName


def lanes_for(
    tables: Sequence[TableName],
    store: Store,
    settings: RelaySettings,
    backoff: Backoff,
    leaves: Leaves,
    observe: Callable[[Event], None],
    crashed: Callable[[BaseException], None],
) -> list[Lane]:
    """A lane for each table, with one budget of dispatches for all, and woken by the store's hints."""
    budget = Budget(settings.concurrency, shared=leaves.many or len(tables) > 1)
    lanes = {
        table: Lane(table, store, settings, backoff, leaves, observe, crashed, budget=budget)
        for table in tables
    }

    def hinted(table: TableName | None) -> None:
        for name, lane in lanes.items():
            if table is None or name == table:
                lane.wakeups.hint()

    store.listen(tables, hinted)
    return list(lanes.values())

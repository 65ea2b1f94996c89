"""Many messages in one call of the dispatcher, and an outcome for each, whatever it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from outbox_core.outcomes import outcomes_of

if TYPE_CHECKING:
    from outbox_core.dispatcher import BatchDispatcher, Outcome
    from outbox_core.relay.leaf import Leaf
    from outbox_core.store import Row


async def dispatch_window(leaf: Leaf, rows: Sequence[Row], deadline: float) -> Sequence[Outcome]:
    """Dispatch rows together; the outcomes in their order."""
    dispatcher = cast("BatchDispatcher", leaf.dispatcher)
    try:
        returned = await dispatcher.dispatch_many([row.message for row in rows], deadline=deadline)
        return outcomes_of(leaf.name, returned, len(rows))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever a dispatcher raises is the messages' outcome
        return [error] * len(rows)


def sharing(
    rows: Sequence[Row], outcomes: Sequence[Outcome]
) -> Iterable[tuple[Sequence[Row], BaseException]]:
    """The errors that several rows got together, one object for all, each with those rows."""
    found: dict[int, tuple[list[Row], BaseException]] = {}
    for row, outcome in zip(rows, outcomes, strict=True):
        if outcome is not None:
            found.setdefault(id(outcome), ([], outcome))[0].append(row)
    return [(together, error) for together, error in found.values() if len(together) > 1]


def acknowledged_first(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> Sequence[tuple[Row, Outcome]]:
    """Each row with its outcome. Of a destination that is away for some of them, the breaker would open and close again
    with every pair."""
    return sorted(zip(rows, outcomes, strict=True), key=lambda pair: pair[1] is not None)

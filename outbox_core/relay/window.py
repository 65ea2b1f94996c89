"""Many messages in one call of the dispatcher, and an outcome for each, whatever it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from outbox_core.outcomes import outcomes_of

if TYPE_CHECKING:
    from outbox_core.dispatcher import BatchDispatcher, Outcome
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.relay.leaf import Leaf


async def dispatch_window(leaf: Leaf, rows: Sequence[Delivery], deadline: float) -> Sequence[Outcome]:
    """Dispatch rows together; the outcomes in their order."""
    dispatcher = cast("BatchDispatcher", leaf.dispatcher)
    try:
        returned = await dispatcher.dispatch_many([row.message for row in rows], deadline=deadline)
        return outcomes_of(leaf.name, returned, len(rows))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever a dispatcher raises is the messages' outcome
        return [error] * len(rows)

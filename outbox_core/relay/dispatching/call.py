"""Calling a dispatcher with a window of messages: an outcome for each, whatever it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from outbox_core.outcomes import outcomes_of

if TYPE_CHECKING:
    from outbox_core.dispatcher import BatchDispatcher, Outcome
    from outbox_core.relay.dispatching.destinations import Destination
    from outbox_core.relay.in_flight import Delivery


async def dispatch_window(
    destination: Destination, rows: Sequence[Delivery], deadline: float
) -> Sequence[Outcome]:
    """Dispatch rows together; the outcomes in their order."""
    dispatcher = cast("BatchDispatcher", destination.dispatcher)
    try:
        returned = await dispatcher.dispatch_many([row.message for row in rows], deadline=deadline)
        return outcomes_of(destination.name, returned, len(rows))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # what a dispatcher raises is the messages' outcome
        return [error] * len(rows)

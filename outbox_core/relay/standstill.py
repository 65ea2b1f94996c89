"""An event loop that stands still, and who is to look for the reason: nothing else would tell what it cost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.relay import clock

if TYPE_CHECKING:
    from outbox_core.table import TableName

_LOOK_SECONDS: Final = 0.5
_LATE_SECONDS: Final = 1.0
"""Later than a busy loop is."""
_logger: Final = logging.getLogger("outbox_core.relay")


async def watch_the_loop(table: TableName) -> None:
    """Sleep again and again, until cancelled, and warn when waking up came late by more than a second: meanwhile there
    was no heartbeat, no claim and no record. A process that was stopped or got no processor looks the same. It is told
    as of ``table``."""
    while True:
        began = clock.now()
        await anyio.sleep(_LOOK_SECONDS)
        late = clock.now() - began - _LOOK_SECONDS
        if late > _LATE_SECONDS:
            _logger.warning(
                "%s: the event loop stood still for %.1f s: look for a blocking call in the dispatcher or beside it,"
                " unless the process was stopped or had no processor",
                table, late, extra={"outbox_table": str(table)},
            )  # fmt: skip

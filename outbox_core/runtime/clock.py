"""The relay's own clock, for its own deadlines: the event loop's, which never goes back. What is due, and whose lease
is void, the database's clock decides."""

from __future__ import annotations

from asyncio import get_running_loop


def now() -> float:
    """Seconds on the event loop's monotonic clock, the one that `anyio` deadlines are on."""
    return get_running_loop().time()

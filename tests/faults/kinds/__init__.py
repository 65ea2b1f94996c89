"""Every kind of fault, by name. Each breaks something, waits until somebody felt it, heals it and says what was felt.

A kind that nobody felt raises `NotHit`; one that cannot be had on this machine raises `NotHere`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.faults.kinds import broker, clock, database, network, process, stopping
from tests.faults.world import World

Fault = Callable[[World], Awaitable[str]]

KINDS: dict[str, Fault] = {
    fault.__name__: fault
    for module in (process, stopping, network, database, broker, clock)
    for fault in module.FAULTS
}
"""In a fixed order, so that a seed always gives the same plan."""

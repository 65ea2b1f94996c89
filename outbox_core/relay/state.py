"""Where a relay is in its life."""

from __future__ import annotations

from enum import StrEnum


class RelayState(StrEnum):
    """A relay is in one of these; from stopped it can be started again."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"

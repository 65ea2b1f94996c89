"""What the environment says about a run. Each raises ValueError, with what to do, for a value that cannot be meant."""

from __future__ import annotations

import os
import shutil
from typing import Final

PGBENCH: Final = "OUTBOX_BENCHMARK_PGBENCH"
CHOSEN: Final = "OUTBOX_BENCHMARK_BROKERS"
BROKERS: Final = ("kafka", "nats", "amqp")


def pgbench() -> str | None:
    """The program that was named, if one was."""
    named = os.environ.get(PGBENCH)
    if not named:
        return None
    found = shutil.which(named)
    if found is None:
        raise ValueError(f"{PGBENCH}={named} is no program; name pgbench's file, or leave the variable out")
    return found


def brokers() -> list[str]:
    """Those that were chosen, or all."""
    names = (os.environ.get(CHOSEN) or ",".join(BROKERS)).split(",")
    if unknown := sorted(set(names) - set(BROKERS)):
        wrong = ", ".join(map(repr, unknown))
        raise ValueError(f"{CHOSEN} names {wrong}; there are {', '.join(BROKERS)}, with commas between them")
    return names

"""A journal that survives whoever writes it: lines of JSON, appended whole, readable by another process at any time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Journal:
    """What brokers, observers and faults saw, by any number of processes. Times are the machine's monotonic clock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kind: str, **details: object) -> None:
        line = json.dumps({"kind": kind, "pid": os.getpid(), "at": time.monotonic(), **details})
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)

    def read(self, kind: str | None = None, **details: object) -> list[dict[str, Any]]:
        """The lines of one kind, or all, with these details, oldest first."""
        if not self.path.exists():
            return []
        # What follows the last line break is still being written.
        lines = [json.loads(line) for line in self.path.read_text().split("\n")[:-1]]
        return [
            line
            for line in lines
            if kind in (None, line["kind"])
            and all(line.get(name) == value for name, value in details.items())
        ]

    def delivered(self, **details: object) -> list[int]:
        """The sequences a broker acknowledged, in order, repetitions included."""
        return [line["sequence"] for line in self.read("ack", **details)]

    def events(self, name: str, **details: object) -> list[dict[str, Any]]:
        return self.read("event", name=name, **details)

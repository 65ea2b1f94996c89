"""Whether a file can be written, found out before hours of work that are to end in it."""

from __future__ import annotations

from pathlib import Path


def unwritable(file: Path) -> str:
    """Why this file cannot be written; empty when it can. What was not there before is not there after."""
    there = file.exists()
    try:
        with file.open("ab"):
            pass
    except OSError as error:
        return str(error.strerror)
    if not there:
        file.unlink()
    return ""

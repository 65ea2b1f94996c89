"""Whether a file can be written, found out before hours of work that are to end in it."""

from __future__ import annotations

import argparse
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


def refuse_unwritable(parser: argparse.ArgumentParser, arguments: argparse.Namespace, *names: str) -> None:
    """End the process with a message when a file that was asked for cannot be written."""
    for name in names:
        file: Path | None = getattr(arguments, name)
        if file is not None and (reason := unwritable(file)):
            parser.error(
                f"--{name} {file} cannot be written: {reason}; name a file in a folder that is there"
            )

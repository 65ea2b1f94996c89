"""Standard output and standard error that cannot be written any more: their reader has left, or their disk is full."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

_LOST = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class OutputLost(Exception):
    """Raised when standard output can no longer be written, in place of the ``error`` that click would take away."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def lost_output(error: BaseException) -> OSError | None:
    """The error, if it is one of writing to a stream that is open already. Errors of files have the file's name."""
    if isinstance(error, OutputLost):
        return error.error
    if isinstance(error, OSError) and error.filename is None and error.errno in _LOST:
        return error
    return None


@contextmanager
def writing() -> Generator[None]:
    """A block that writes to standard output, all of which is written when it ends."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        lost = lost_output(error)
        if lost is None:
            raise
        raise OutputLost(lost) from None


def provide() -> None:
    """Where a process was started without standard output or standard error, what is written there goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def tell(text: str) -> None:
    """Write to standard error, if that can still be written."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Have what the stream still holds go nowhere, so that the interpreter does not fail on it when it ends."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)

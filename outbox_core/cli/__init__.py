"""The command ``outbox``, which comes with the extra ``[cli]``. Everything it does is first a call in Python."""

from __future__ import annotations

import sys

from outbox_core.errors import MissingExtra
from outbox_core.extras import needs_extra

_CONFIGURATION = 3
"""The exit code of `outbox_core.cli.failures` for a missing package, which cannot be imported without it."""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    try:
        with needs_extra("cli", feature="the command line `outbox`"):
            from outbox_core.cli.root import root
    except MissingExtra as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(_CONFIGURATION)
    root.main(prog_name="outbox")

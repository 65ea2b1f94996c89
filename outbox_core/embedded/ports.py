"""Ports of this machine's own address."""

from __future__ import annotations

import socket
from typing import Final

from outbox_core.errors import ConfigError, EmbeddedServerError

HOST: Final = "127.0.0.1"
_LARGEST: Final = 65535


def take_port(server: str, wanted: int) -> int:
    """``wanted`` if nobody listens there, or a free one for 0.

    Nothing holds the port until the server listens, which makes a race that is as unlikely as it is unavoidable.
    """
    if not 0 <= wanted <= _LARGEST:
        raise ConfigError(f"the port of {server} must be from 0, for a free one, to {_LARGEST}, got {wanted}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            raise EmbeddedServerError(
                server,
                f"it cannot listen on {HOST}:{wanted} ({error.strerror}): give another port, or 0 for a free one",
            ) from None
        port: int = probe.getsockname()[1]
        return port

"""What to say when the database cannot be connected to: where it was looked for, what was wrong, what to do."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

_PORT: Final = 5432
_HOSTS: Final = re.compile(r"[^:\[\]]*(?::\d+)?(?:,[^:\[\]]+(?::\d+)?)*|\[[0-9A-Fa-f:.]+\](?::\d+)?")
_WITH_PORT: Final = re.compile(r":\d+$")
_UNREADABLE: Final = "an address that cannot be read"
_BY_STATE: Final = {
    "3D000": "there is no database of that name there; check the name, or create the database",
    "28P01": "the password was refused; check the user and the password",
    "28000": "the user may not log in there; check the user, and the server's pg_hba.conf",
    "53300": "all connections are taken; end some, or raise max_connections or the role's or database's own limit"
    " (a relay needs up to five)",
    "57P03": "the server is starting up or shutting down; try again in a moment",
    "57P01": "the server is shutting down; try again when it is back",
    "08003": "it closed the connection at once; check that PostgreSQL, and nothing else, listens on that port",
}
_REFUSED: Final = (
    "nothing listens there; check host and port, and that PostgreSQL is running and listens on that address"
)
_UNKNOWN_HOST: Final = (
    "the host name is not known; check the host in the database URL, and this machine's DNS"
)
_NO_ANSWER: Final = "no answer; check host and port, and the firewalls on the way"
_NO_TLS: Final = "no encrypted connection could be made; check sslmode, and the certificates of both sides"


def address(dsn: str, arguments: Mapping[str, Any]) -> str:
    """``host:port/database`` of a connection, never its user or password. What ``arguments`` say goes first, as it
    does with the driver. A URL that cannot be read is not shown: a mistyped one has its password anywhere."""
    try:
        url = urlsplit(dsn)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    except ValueError:
        return _UNREADABLE
    user, at, hosts = url.netloc.rpartition("@")
    if "@" in url.path + url.query + user or url.fragment or _HOSTS.fullmatch(hosts) is None:
        return _UNREADABLE
    host = arguments.get("host") or unquote(hosts) or query.get("host") or "the default host"
    port = arguments.get("port") or query.get("port") or _PORT
    names = host.split(",") if isinstance(host, str) else [str(one) for one in host]
    shown = ",".join(name if _WITH_PORT.search(name) else f"{name}:{port}" for name in names)
    named = (
        arguments.get("database")
        or url.path.removeprefix("/")
        or query.get("dbname")
        or query.get("database")
    )
    database = named or (user.partition(":")[0] if at else "")
    return f"{shown}/{unquote(str(database))}"


def obstacle(error: BaseException) -> str:
    """What kept a connection from being made, and what to do about it; the driver's own words are left out."""
    state = getattr(error, "sqlstate", None)
    name = f"{type(error).__name__} ({state})" if state else type(error).__name__
    advice = _BY_STATE.get(state) if isinstance(state, str) else None
    if advice is None:
        advice = _of_network(error)
    return name if advice is None else f"{advice} [{name}]"


def _of_network(error: BaseException) -> str | None:
    if isinstance(error, socket.gaierror):
        return _UNKNOWN_HOST
    # Of several addresses of one host, the event loop's error has the texts of them all and no number of its own.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return _REFUSED
    if isinstance(error, FileNotFoundError):
        return "there is no such socket; check the folder in the database URL, and that PostgreSQL is running"
    if isinstance(error, ssl.SSLError) or "SSL upgrade" in str(error):
        return _NO_TLS
    return _NO_ANSWER if isinstance(error, TimeoutError) else None

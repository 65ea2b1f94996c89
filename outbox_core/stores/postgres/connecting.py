"""What to say when the database cannot be connected to: where it was looked for, what was wrong, what to do."""

from __future__ import annotations

import errno
import inspect
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from outbox_core.errors import ConfigError, StorageUnavailable

_PORT: Final = 5432
_HOSTS: Final = re.compile(r"[^:\[\]]*(?::\d+)?(?:,[^:\[\]]+(?::\d+)?)*|\[[0-9A-Fa-f:.]+\](?::\d+)?")
_WITH_PORT: Final = re.compile(r":\d+$")
_NUMBER: Final = re.compile(r"[0-9]{1,5}")
_UNREADABLE: Final = "an address that cannot be read"
_SCHEMES: Final = ("postgresql://", "postgres://")
_PORT_OF: Final = re.compile(r"^(?:\[[^\]]*\]|[^:\[]*):?")
"""What stands before the port."""
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_ENCODE: Final = "in a user or a password write @ : / ? # as %40 %3A %2F %3F %23"
_BY_STATE: Final = {
    "3D000": ("there is no database of that name there", "check the name, or create the database"),
    "28P01": ("the password was refused", "check the user and the password"),
    "28000": ("the user may not log in there", "check the user, and the server's pg_hba.conf"),
    "53300": (
        "all connections are taken",
        "end some, or raise max_connections or the role's or database's own limit (a relay needs up to five)",
    ),
    "57P03": ("the server is starting up or shutting down", "try again in a moment"),
    "57P01": ("the server is shutting down", "try again when it is back"),
    "08003": (
        "it closed the connection at once",
        "check that PostgreSQL, and nothing else, listens on that port",
    ),
}
_REFUSED: Final = (
    "nothing listens there",
    "check host and port, and that PostgreSQL is running and listens on that address",
)
_UNKNOWN_HOST: Final = (
    "the host name is not known",
    "check the host in the database URL, and this machine's DNS",
)
_NO_SOCKET: Final = (
    "there is no such socket",
    "check the folder in the database URL and that PostgreSQL is running, or the file of a certificate it names",
)
_NO_ANSWER: Final = ("no answer", "check host and port, and the firewalls on the way")
_NO_TLS: Final = (
    "no encrypted connection could be made",
    "check sslmode, and the certificates of both sides",
)
_UNREAD_OPTION: Final = (
    "an option of the database URL cannot be used",
    "check sslmode and what else stands after its ?",
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What kept a connection from being made: in words, empty where none fit, what to do about it, and the error."""

    what: str
    remedy: str
    name: str

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy} [{self.name}]" if self.what else self.name


def flaw(dsn: str) -> str | None:
    """Why no connection can be made with a database URL as it is written; None when it can be read.

    No part of it is repeated: a mistyped one has its password anywhere.
    """
    if not dsn.startswith(_SCHEMES):
        return "it must begin with postgresql://, as in postgresql://user:password@host:5432/name"
    try:
        url = urlsplit(dsn)
        options = parse_qs(url.query, strict_parsing=True) if url.query else {}
    except ValueError:
        return f"its host or its options cannot be read; {_ENCODE}"
    user, _, hosts = url.netloc.rpartition("@")
    if "@" in user:
        return f"it has more than one @ before the database's name; {_ENCODE}"
    ports = [_PORT_OF.sub("", host) for host in hosts.split(",")]
    if any(port and (_NUMBER.fullmatch(port) is None or not 0 < int(port) < 65536) for port in ports):
        return f"the port after its host must be a number from 1 to 65535; {_ENCODE}"
    if "=" in url.path:
        return "an = stands in its database's name: options follow a ?, and in a name it is written %3D"
    if not {mode.replace("_", "-") for mode in options.get("sslmode", ())}.issubset(_SSL_MODES):
        return f"its sslmode must be one of {', '.join(_SSL_MODES)}"
    return None


def address(dsn: str, arguments: Mapping[str, Any]) -> str:
    """``host:port/database`` of a connection, never its user or password. What ``arguments`` say goes first, as it
    does with the driver. A URL that cannot be read is not shown: a mistyped one has its password anywhere."""
    if flaw(dsn) is not None:
        return _UNREADABLE
    url = urlsplit(dsn)
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
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


def connect_arguments(given: object) -> dict[str, Any]:
    """The arguments for ``asyncpg.connect``, as a copy. Raises `ConfigError` for what that does not take; no
    value is shown, for it may be a password."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"connect must be a mapping of arguments of asyncpg.connect, got a {type(given).__name__}"
        )
    arguments = dict(cast("Mapping[str, Any]", given))
    parameters = inspect.signature(asyncpg.connect).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = parameters.keys() - {"dsn"}
    if (unknown := arguments.keys() - known) and not takes_any:
        raise ConfigError(
            f"connect has {', '.join(sorted(map(repr, unknown)))}, which asyncpg.connect does not take beside the"
            f" database URL; known are {', '.join(sorted(known))}"
        )
    if arguments.get("server_settings", {}) is None:
        del arguments["server_settings"]  # the driver's own default
    if not isinstance(arguments.get("server_settings", {}), Mapping):
        raise ConfigError(
            "server_settings in connect must be a mapping of names to values; leave it out for none"
        )
    return arguments


def obstacle(error: BaseException) -> Obstacle:
    """What kept a connection from being made, and what to do about it; the driver's own words are left out."""
    state = getattr(error, "sqlstate", None)
    name = f"{type(error).__name__} ({state})" if state else type(error).__name__
    known = _BY_STATE.get(state) if isinstance(state, str) else None
    what, remedy = known or _of_network(error) or ("", "")
    return Obstacle(what, remedy, name)


def may_quote(error: BaseException) -> bool:
    """Whether an error is one about a URL or an option, the driver's text of which may quote a password."""
    return isinstance(error, ValueError | OverflowError) and not isinstance(error, OSError)


def refusal(
    error: BaseException, where: str, *, connected_before: bool = False
) -> ConfigError | StorageUnavailable:
    """What to raise when a connection could not be made: whether it never will be as things are written, or may be
    later, as after one that was made. ``where`` is the `address`, with what stands before it, or empty."""
    if may_quote(error) and not connected_before:
        return ConfigError(f"the database URL cannot be used: {obstacle(error)}")
    return StorageUnavailable(f"cannot connect to the database{where}: {obstacle(error)}")


def _of_network(error: BaseException) -> tuple[str, str] | None:
    if isinstance(error, socket.gaierror):
        return _UNKNOWN_HOST
    # Of several addresses of one host, the event loop's error has the texts of them all and no number of its own.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return _REFUSED
    if isinstance(error, FileNotFoundError):
        return _NO_SOCKET
    if isinstance(error, ssl.SSLError) or "SSL upgrade" in str(error):
        return _NO_TLS
    if isinstance(error, ValueError):
        return _UNREAD_OPTION
    return _NO_ANSWER if isinstance(error, TimeoutError) else None

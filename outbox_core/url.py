"""One parser of dispatcher URLs for every adapter: ``kafka://user:secret@host1:9092,host2:9092?client_id=orders``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from outbox_core.errors import InvalidUrl
from outbox_core.jsonb import SURROGATE

_BARE: Final = re.compile(r"[A-Za-z0-9._-]+:\d+(?:,[A-Za-z0-9._-]+:\d+)*")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f#]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST: Final = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\.?)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?"
)
_MAX_PORT: Final = 65535


class Host(NamedTuple):
    """One server of a URL. An IPv6 address stands in ``name`` without brackets; ``port`` is None when not given."""

    name: str
    port: int | None

    def address(self, default_port: int | None = None) -> str:
        """``name:port`` as client libraries want it, with an IPv6 address in brackets; no colon without any port."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        port = self.port or default_port
        return name if port is None else f"{name}:{port}"


@dataclass(frozen=True, slots=True, repr=False)
class DispatcherUrl:
    """Where messages go, read from a URL and validated; everything is percent-decoded.

    ``path`` lacks its leading slash and is empty when there is none. ``str()`` and ``repr()`` mask credentials and the
    values of options, so a URL can be logged; `InvalidUrl` never repeats what it refuses.
    """

    scheme: str
    hosts: tuple[Host, ...]
    username: str | None = None
    password: str | None = None
    path: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @classmethod
    def parse(
        cls,
        value: str | DispatcherUrl,
        *,
        schemes: Collection[str] = (),
        bare: str | None = None,
        port: int = 9092,
    ) -> DispatcherUrl:
        """Read a URL; with ``schemes`` given, any other scheme is refused. A `DispatcherUrl` is only checked for that.

        ``bare`` is the scheme of plain ``host:port`` addresses, one or several with commas between them; ``port`` is
        the usual one, for the text of errors.

        ``@ / ? # , %`` and spaces in a user name, password or option are written percent-encoded (``%40`` for ``@``).
        """
        if bare is not None and isinstance(value, str) and _BARE.fullmatch(value) is not None:
            value = f"{bare}://{value}"
        url = value if isinstance(value, DispatcherUrl) else _parse(value, _Example(bare, port))
        if schemes and url.scheme not in schemes:
            raise InvalidUrl(url.scheme, f"expected the scheme {_listed(schemes)}, got {url.scheme!r}")
        return url

    def take(self, *known: str) -> dict[str, str]:
        """The options given, after refusing any that is not among ``known``: a misspelt one must not be ignored."""
        unknown = sorted(set(self.options) - set(known))
        if unknown:
            accepted = f"the known ones are {_listed(known)}" if known else "it takes none"
            raise InvalidUrl(self.scheme, f"unknown option {_listed(unknown)}; {accepted}")
        return dict(self.options)

    def __str__(self) -> str:
        # A user name without a password is a token for some brokers, so alone it is as secret as a password.
        user = ""
        if self.username is not None:
            user = f"{_printable(self.username)}:***@" if self.password is not None else "***@"
        hosts = ",".join(host.address() for host in self.hosts)
        path = f"/{_printable(self.path)}" if self.path else ""
        options = "&".join(f"{_printable(name)}=***" for name in self.options)
        return f"{self.scheme}://{user}{hosts}{path}{'?' if options else ''}{options}"

    def __repr__(self) -> str:
        return f"DispatcherUrl({str(self)!r})"


def _printable(text: str) -> str:
    """With whatever would break a line of a log, or hide in it, percent-encoded again."""
    return "".join(character if character.isprintable() else quote(character) for character in text)


class _Example(NamedTuple):
    """How an address may look, for the text of errors."""

    bare: str | None
    port: int

    def __str__(self) -> str:
        url = f"'{self.bare or 'kafka'}://localhost:{self.port}'"
        return url if self.bare is None else f"{url} or plainly 'localhost:{self.port}'"


def _parse(text: str, example: _Example) -> DispatcherUrl:
    if not isinstance(text, str):
        raise InvalidUrl("", f"expected a str such as {example}, got {type(text).__name__}")
    scheme, separator, rest = text.partition("://")
    if separator and scheme != scheme.lower() and _SCHEME.fullmatch(scheme.lower()) is not None:
        raise InvalidUrl("", f"its scheme is written in small letters, as in {example}")
    if not separator or _SCHEME.fullmatch(scheme) is None:
        raise InvalidUrl("", f"it has no scheme and is not host:port; write it as {example}")
    if SURROGATE.search(rest) is not None:
        raise InvalidUrl(scheme, "it has bytes that are not UTF-8")
    if _FORBIDDEN.search(rest) is not None:
        raise InvalidUrl(scheme, "spaces, control characters and '#' must be percent-encoded ('#' as %23)")
    if _BAD_ESCAPE.search(rest) is not None:
        raise InvalidUrl(
            scheme, "a '%' is not followed by two hexadecimal digits; a literal '%' is written %25"
        )
    location, _, query = rest.partition("?")
    authority, _, path = location.partition("/")
    if authority.count("@") > 1 or "@" in path or "@" in query:
        raise InvalidUrl(
            scheme,
            "only one '@' may stand in it, between the credentials and the first host; in a user name, password,"
            " path or option, '@' is written %40, '/' %2F and '?' %3F",
        )
    credentials, at, hosts = authority.rpartition("@")
    username, password = _credentials(scheme, credentials) if at else (None, None)
    return DispatcherUrl(
        scheme=scheme,
        hosts=_hosts(scheme, hosts),
        username=username,
        password=password,
        path=_decoded(scheme, path),
        options=MappingProxyType(_options(scheme, query)),
    )


def _credentials(scheme: str, text: str) -> tuple[str, str | None]:
    username, colon, password = text.partition(":")
    if not username:
        raise InvalidUrl(scheme, "the user name before '@' is empty")
    return _decoded(scheme, username), _decoded(scheme, password) if colon else None


def _hosts(scheme: str, text: str) -> tuple[Host, ...]:
    if not text:
        raise InvalidUrl(scheme, f"it names no host; write it as {scheme}://host:port")
    return tuple(_host(scheme, part, number) for number, part in enumerate(text.split(","), start=1))


def _host(scheme: str, text: str, number: int) -> Host:
    # Hosts are told apart by their position: in a URL without its '@', what stands here is the user name and password.
    match = _HOST.fullmatch(text)
    if match is None or (match["ipv6"] and not _is_ipv6(match["ipv6"])):
        raise InvalidUrl(
            scheme,
            f"host number {number} is not 'name', 'name:port' or '[IPv6 address]:port'"
            " (after a user name and password an '@' must follow)",
        )
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= _MAX_PORT:
        raise InvalidUrl(scheme, f"the port of host number {number} is not between 1 and {_MAX_PORT}")
    return Host(match["name"] or match["ipv6"], port)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _options(scheme: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        name = _decoded(scheme, name)
        if not name or not equals:
            raise InvalidUrl(scheme, "options are written ?name=value&name=value")
        if name in options:
            raise InvalidUrl(scheme, f"the option {name!r} is given twice")
        options[name] = _decoded(scheme, value)
    return options


def _decoded(scheme: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        # Not chained: the original carries the undecodable text, which may be a password.
        raise InvalidUrl(scheme, "percent-encoded characters must be UTF-8") from None


def _listed(names: Collection[str]) -> str:
    return ", ".join(repr(name) for name in names)

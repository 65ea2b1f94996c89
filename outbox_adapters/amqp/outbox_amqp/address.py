"""The address of an AMQP 0-9-1 broker and the login, read from a dispatcher URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from outbox_amqp.rendering import name_problem
from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.errors import InvalidUrl
from outbox_core.url import DispatcherUrl

SCHEMES: Final = ("amqp", "amqps")
GUEST: Final = "guest"
_DOT_SEGMENTS: Final = (".", "..")
DEFAULT_PORTS: Final = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpAddress:
    """``amqp://[user:password@]host[:port][/vhost][?exchange=…&cloud_events=…]``; ``amqps`` speaks TLS.

    The port defaults to 5672, with TLS to 5671. The user ``guest``, which brokers accept from their own machine, has
    the password ``guest`` unless another is given; without a user the client logs in as ``guest``. Without a path the
    virtual host is ``/``; write a slash inside its name as ``%2F``. ``exchange`` is the exchange that messages are
    published to, by default the broker's default exchange, which routes to the queue named like the routing key. To
    use a cluster, name one of its nodes or a load balancer: the client takes a single host. ``cloud_events`` is
    ``binary`` or ``structured``.
    """

    server: str
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    virtual_host: str = "/"
    exchange: str = ""
    cloud_events: CloudEvents | None = None

    @classmethod
    def parse(cls, value: str | DispatcherUrl) -> AmqpAddress:
        """Read a URL. Raises `outbox_core.errors.InvalidUrl` with the broken rule, and never with the password."""
        url = DispatcherUrl.parse(value, schemes=SCHEMES, bare=SCHEMES[0], port=DEFAULT_PORTS[SCHEMES[0]])
        options = url.take("exchange", "cloud_events")
        host, *others = url.hosts
        if others:
            raise InvalidUrl(
                url.scheme, f"it names {len(url.hosts)} hosts and the AMQP client takes exactly one"
            )
        if url.path in _DOT_SEGMENTS:
            raise InvalidUrl(
                url.scheme,
                "the AMQP client cannot reach a virtual host named '.' or '..': it takes them for a path",
            )
        exchange = options.get("exchange", "")
        if (problem := name_problem(exchange)) is not None:
            raise InvalidUrl(url.scheme, f"the option 'exchange' {problem}")
        return cls(
            server=host.address(DEFAULT_PORTS[url.scheme]),
            tls=url.scheme == "amqps",
            username=url.username,
            password=_password(url),
            virtual_host=url.path or "/",
            exchange=exchange,
            cloud_events=CloudEvents.from_option(url.scheme, options.get("cloud_events")),
        )

    @property
    def name(self) -> str:
        """The server and the virtual host, without credentials: the dispatcher's name in metrics and logs."""
        host = "" if self.virtual_host == "/" else f"/{quote(self.virtual_host, safe='')}"
        return f"{'amqps' if self.tls else 'amqp'}://{self.server}{host}"

    def client_arguments(self) -> dict[str, object]:
        """Keyword arguments for `aio_pika.connect`. TLS verifies the server against the system's certificates."""
        scheme = "amqps" if self.tls else "amqp"
        credentials = ""
        if self.username is not None and self.password is not None:
            credentials = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}@"
        return {"url": f"{scheme}://{credentials}{self.server}/{quote(self.virtual_host, safe='')}"}


def _password(url: DispatcherUrl) -> str | None:
    if url.username is None or url.password is not None:
        return url.password
    if url.username != GUEST:
        raise InvalidUrl(
            url.scheme,
            f"the user name has no password; write user:password@host (only {GUEST!r} has a usual one)",
        )
    return GUEST

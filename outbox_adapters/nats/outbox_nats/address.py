"""The address of a NATS cluster and the login, read from a dispatcher URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.errors import InvalidUrl
from outbox_core.url import DispatcherUrl
from outbox_nats.rendering import stream_problem

SCHEMES: Final = ("nats", "nats+tls")
DEFAULT_PORT: Final = 4222


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsAddress:
    """``nats://[user:password@ or token@]host[:port],…[?stream=…&cloud_events=…]``; ``nats+tls`` speaks TLS.

    Ports default to 4222. A user name without a password is an authentication token. ``stream`` names the JetStream
    stream that must store what is published; without it the server picks the stream by subject. ``cloud_events`` is
    ``binary`` or ``structured``.
    """

    servers: tuple[str, ...]
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    stream: str | None = None
    cloud_events: CloudEvents | None = None

    @classmethod
    def parse(cls, value: str | DispatcherUrl) -> NatsAddress:
        """Read a URL. Raises `outbox_core.errors.InvalidUrl` with the broken rule, and never with the password."""
        url = DispatcherUrl.parse(value, schemes=SCHEMES, bare=SCHEMES[0], port=DEFAULT_PORT)
        options = url.take("stream", "cloud_events")
        if url.path:
            raise InvalidUrl(
                url.scheme, "it has a path, and NATS has nothing to do with one: a message names its subject"
            )
        if options.get("stream") == "":
            raise InvalidUrl(
                url.scheme, "the option 'stream' is empty; name a stream or leave the option out"
            )
        stream = options.get("stream")
        if stream is not None and (problem := stream_problem(stream)) is not None:
            raise InvalidUrl(url.scheme, f"the option 'stream' is {stream!r}: {problem}")
        tls = url.scheme == "nats+tls"
        client_scheme = "tls" if tls else "nats"
        has_token = url.password is None
        return cls(
            servers=tuple(f"{client_scheme}://{host.address(DEFAULT_PORT)}" for host in url.hosts),
            tls=tls,
            username=None if has_token else url.username,
            password=url.password,
            token=url.username if has_token else None,
            stream=stream,
            cloud_events=CloudEvents.from_option(url.scheme, options.get("cloud_events")),
        )

    @property
    def name(self) -> str:
        """The servers, without credentials: the dispatcher's name in metrics and logs."""
        return ",".join(self.servers)

    def client_arguments(self) -> dict[str, object]:
        """Keyword arguments for `nats.connect`. TLS verifies the servers against the system's certificates."""
        arguments: dict[str, object] = {"servers": list(self.servers)}
        if self.tls:
            arguments["tls"] = ssl.create_default_context()
        if self.username is not None:
            arguments["user"] = self.username
            arguments["password"] = self.password
        if self.token is not None:
            arguments["token"] = self.token
        return arguments

"""The address of a Kafka cluster and the login, read from a dispatcher URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.errors import InvalidUrl
from outbox_core.url import DispatcherUrl

SCHEMES: Final = ("kafka", "kafka+ssl")
DEFAULT_PORT: Final = 9092
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAddress:
    """``kafka://[user:password@]host[:port],…[?client_id=…&sasl_mechanism=…]``; ``kafka+ssl`` speaks TLS.

    Ports default to 9092. With a user the client logs in by SASL, with ``PLAIN`` unless ``sasl_mechanism`` is
    ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``. Over ``kafka://``, ``PLAIN`` sends the password unencrypted. The option
    ``cloud_events`` is ``binary`` or ``structured``.
    """

    bootstrap_servers: str
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sasl_mechanism: str | None = None
    client_id: str | None = None
    cloud_events: CloudEvents | None = None

    @classmethod
    def parse(cls, value: str | DispatcherUrl) -> KafkaAddress:
        """Read a URL. Raises `outbox_core.errors.InvalidUrl` with the broken rule, and never with the password."""
        url = DispatcherUrl.parse(value, schemes=SCHEMES, bare=SCHEMES[0], port=DEFAULT_PORT)
        options = url.take("client_id", "sasl_mechanism", "cloud_events")
        if url.path:
            raise InvalidUrl(
                url.scheme, "it has a path, and Kafka has nothing to do with one: a message names its topic"
            )
        return cls(
            bootstrap_servers=",".join(host.address(DEFAULT_PORT) for host in url.hosts),
            tls=url.scheme == "kafka+ssl",
            username=url.username,
            password=url.password,
            sasl_mechanism=_mechanism(url, options.get("sasl_mechanism")),
            client_id=options.get("client_id"),
            cloud_events=CloudEvents.from_option(url.scheme, options.get("cloud_events")),
        )

    @property
    def name(self) -> str:
        """The servers, without credentials: the dispatcher's name in metrics and logs."""
        return f"{'kafka+ssl' if self.tls else 'kafka'}://{self.bootstrap_servers}"

    @property
    def security_protocol(self) -> str:
        """Kafka's name for the combination of TLS and SASL."""
        transport = "SSL" if self.tls else "PLAINTEXT"
        return transport if self.username is None else f"SASL_{transport}"

    def client_arguments(self) -> dict[str, object]:
        """Keyword arguments for aiokafka's clients. TLS verifies the servers against the system's certificates."""
        arguments: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
        }
        if self.tls:
            arguments["ssl_context"] = ssl.create_default_context()
        if self.username is not None:
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments["sasl_plain_username"] = self.username
            arguments["sasl_plain_password"] = self.password
        if self.client_id is not None:
            arguments["client_id"] = self.client_id
        return arguments


def _mechanism(url: DispatcherUrl, chosen: str | None) -> str | None:
    if url.username is None:
        if chosen is not None:
            raise InvalidUrl(
                url.scheme, "the option 'sasl_mechanism' needs a user and a password before the host"
            )
        return None
    if url.password is None:
        raise InvalidUrl(url.scheme, "the user name has no password; write user:password@host")
    if chosen is not None and chosen not in SASL_MECHANISMS:
        accepted = ", ".join(SASL_MECHANISMS)
        raise InvalidUrl(
            url.scheme, f"the option 'sasl_mechanism' is {chosen!r} and must be one of {accepted}"
        )
    return chosen or "PLAIN"

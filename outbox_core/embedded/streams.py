"""JetStream streams made as topics need them: an embedded server begins without any."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import anyio

from outbox_core.errors import BrokerUnavailable
from outbox_core.extras import needs_extra

with needs_extra("nats", feature="making streams in an embedded NATS"):
    from nats.aio.client import Client
    from nats.errors import Error as NatsError
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig
    from nats.js.errors import APIError

_TIMEOUT: Final = 5


class Streams:
    """Makes a stream for the first segment of each topic: ``orders`` keeps ``orders`` and ``orders.>``.

    A stream that is there already, whoever made it, is left as it is.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = Client()
        self._known: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._client.connect(
            self._url, connect_timeout=_TIMEOUT, max_reconnect_attempts=-1, error_cb=_unheard
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(_TIMEOUT, shield=True):
            await self._client.close()

    async def provide(self, topic: str) -> None:
        """See that a stream takes the topic, as far as that can be seen from here."""
        first = topic.partition(".")[0]
        if first in self._known:
            return
        streams: Any = JetStreamContext(self._client, timeout=_TIMEOUT)
        try:
            await streams.add_stream(StreamConfig(name=first, subjects=[first, f"{first}.>"]))
        except (TimeoutError, NatsError) as error:
            # What JetStream itself answers means that a stream of the application's own has the name or the subjects.
            if not isinstance(error, APIError):
                raise BrokerUnavailable(f"the embedded NATS did not make the stream {first}") from error
        self._known.add(first)


async def _unheard(error: Exception) -> None:
    """The failure reaches whoever asked; the client's default would print it besides."""
    del error

"""A dispatcher of one's own: it POSTs each message to an HTTP endpoint."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import httpx

from outbox_core import BrokerUnavailable, DispatchedMessage, PermanentError, RetryAfter
from outbox_core.headers import to_headers
from outbox_core.url import DispatcherUrl

_TIMEOUT: Final = 10.0
_TOO_MANY: Final = 429


class WebhookDispatcher:
    """Sends to `webhook://host:port/path`. An answer of 2xx is the receiver's word that it has stored the message."""

    def __init__(self, url: str) -> None:
        parsed = DispatcherUrl.parse(url, schemes=("webhook",))
        parsed.take()  # refuses options, as there are none
        self.name = str(parsed)
        self._target = f"http://{parsed.hosts[0].address(80)}/{parsed.path}"
        self._client = httpx.AsyncClient(timeout=_TIMEOUT)

    async def __aenter__(self) -> Self:
        self._client = httpx.AsyncClient(timeout=_TIMEOUT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def dispatch(self, message: DispatchedMessage) -> None:
        headers = [(name.encode(), value.encode()) for name, value in to_headers(message).items()]
        try:
            response = await self._client.post(self._target, content=message.payload, headers=headers)
        except httpx.NetworkError as error:
            # Nobody is there: no message is to blame, so all of them wait and none is charged an attempt.
            raise BrokerUnavailable(f"{self.name} cannot be reached") from error
        if response.is_success:
            return
        answer = f"{self.name} answered {response.status_code}"
        if response.status_code == _TOO_MANY:
            raise RetryAfter(float(response.headers.get("retry-after", "1")), answer)
        if response.is_client_error:
            # It will never take this one: dead at once, for somebody to look at.
            raise PermanentError(answer)
        # Everything else is tried again, with backoff, until the attempts are used up.
        response.raise_for_status()
        raise PermanentError(f"{answer}, which is neither success nor failure")

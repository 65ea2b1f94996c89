"""Prometheus metrics over HTTP: a plain ASGI application to mount, and what other servers answer with.

app.mount("/metrics", metrics_app(registry))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from outbox_core.extras import needs_extra
from outbox_core.integrations.http import Answer, Request, Route

with needs_extra("prometheus", feature="Prometheus metrics over HTTP"):
    from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """All metrics of a registry, in the format that an ``Accept`` header asks for, and that format's content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def metrics_route(registry: CollectorRegistry) -> Route:
    """The metrics of a registry as a route of `outbox_core.integrations.http.serve`."""

    def route(request: Request) -> Answer:
        body, content_type = exposition(registry, request.accept)
        return Answer(HTTPStatus.OK, body, content_type)

    return route


def metrics_app(registry: CollectorRegistry) -> AsgiApp:
    """An ASGI application that answers GET and HEAD, at any path, with the metrics of a registry.

    It asks nothing of whoever calls: put it where only the monitoring can reach it.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        if scope["type"] != "http":
            return
        if scope["method"] not in ("GET", "HEAD"):
            await _send_all(
                send, 405, b"only GET and HEAD\n", "text/plain; charset=utf-8", (b"allow", b"GET, HEAD")
            )
            return
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
        body, content_type = exposition(registry, accept)
        await _send_all(send, 200, b"" if scope["method"] == "HEAD" else body, content_type)

    return app


async def _send_all(
    send: Send, status: int, body: bytes, content_type: str, *headers: tuple[bytes, bytes]
) -> None:
    """Send one whole response."""
    start = [
        (b"content-type", content_type.encode("latin-1")),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})

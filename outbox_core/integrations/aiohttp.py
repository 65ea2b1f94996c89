"""aiohttp: relays in the application's ``cleanup_ctx``, health routes, and the outbox of a request's transaction::

    relays = AppRelays(Settings.from_env)
    app = web.Application()
    app.cleanup_ctx.append(outbox_context(relays))
    app.add_routes(health_routes(relays))

`docs/how-to/web.md` has the whole of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from outbox_core.extras import needs_extra
from outbox_core.integrations.app_relays import AppRelays
from outbox_core.integrations.bound import BoundOutbox, begin_on, bound
from outbox_core.integrations.health import NO_STORE, Probe, probes

with needs_extra("aiohttp", feature="outbox_core.integrations.aiohttp"):
    from aiohttp import web

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from outbox_core.outbox import Outbox

__all__ = [
    "AppRelays",
    "BoundOutbox",
    "begin_on",
    "bound",
    "bound_outbox",
    "health_routes",
    "metrics_route",
    "outbox_context",
]

T = TypeVar("T")


def outbox_context(relays: AppRelays) -> Callable[[web.Application], AsyncIterator[None]]:
    """What to append to ``app.cleanup_ctx``. Append it after the contexts of what the dispatchers use: contexts end in
    the opposite order, so the relays stop first."""

    async def run(_: web.Application) -> AsyncGenerator[None]:
        async with relays:
            yield

    return run


def bound_outbox(
    outbox: Outbox, transaction_of: Callable[[web.Request], T]
) -> Callable[[web.Request], BoundOutbox[T]]:
    """A function of a request that binds the outbox to the connection or session which the request carries::

        orders_of = bound_outbox(outbox, lambda request: request[CONNECTION])
        await orders_of(request).enqueue(message)

    Where a request has no transaction of its own, `bound` opens one.
    """
    return lambda request: BoundOutbox(outbox, transaction_of(request))


def health_routes(relays: AppRelays, *, prefix: str = "/health") -> list[web.RouteDef]:
    """``<prefix>/live``, ``/ready`` and ``/lag``: 200 or 503, with what `AppHealth` says as JSON."""
    return [web.get(probe.path, _handler(probe), name=probe.name) for probe in probes(relays.health, prefix)]


def metrics_route(registry: CollectorRegistry, path: str = "/debug/prometheus") -> web.RouteDef:
    """The metrics of a Prometheus registry. Anybody who reaches the application can read them."""
    from outbox_core.integrations.metrics import exposition

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = exposition(registry, request.headers.get("accept", ""))
        return web.Response(body=body, headers={"content-type": content_type, **NO_STORE})

    return web.get(path, metrics, name="outbox_metrics")


def _handler(probe: Probe) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(_: web.Request) -> web.Response:
        status, body = probe.answer()
        return web.json_response(body, status=status, headers=NO_STORE)

    return handler

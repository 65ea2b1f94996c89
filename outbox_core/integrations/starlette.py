"""Starlette: relays in the application's lifespan, health routes, and the outbox of a request's transaction::

    relays = AppRelays(Settings.from_env)
    app = Starlette(routes=[*routes, *health_routes(relays)], lifespan=outbox_lifespan(relays))

`docs/how-to/web.md` has the whole of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from outbox_core.extras import needs_extra
from outbox_core.integrations.app_relays import AppRelays
from outbox_core.integrations.bound import BoundOutbox, begin_on, bound
from outbox_core.integrations.health import NO_STORE, Probe, probes

with needs_extra("fastapi", feature="outbox_core.integrations.starlette"):
    from starlette.responses import JSONResponse, Response
    from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.requests import Request
    from starlette.types import Lifespan

    from outbox_core.outbox import Outbox

__all__ = [
    "AppRelays",
    "BoundOutbox",
    "begin_on",
    "bound",
    "bound_outbox",
    "health_routes",
    "metrics_route",
    "outbox_lifespan",
]

T = TypeVar("T")


def outbox_lifespan(relays: AppRelays, *, lifespan: Lifespan[Any] | None = None) -> Lifespan[Any]:
    """A lifespan that runs the relays. Your own goes inside the arguments: it begins before the relays start and ends
    after they have stopped, so that dispatchers may use what it opens. Its state is passed on."""

    @asynccontextmanager
    async def combined(app: Any) -> AsyncGenerator[Any]:
        if lifespan is None:
            async with relays:
                yield
            return
        async with lifespan(app) as state, relays:
            yield state

    return cast("Lifespan[Any]", combined)


def bound_outbox(
    outbox: Outbox, transaction_of: Callable[[Request], T]
) -> Callable[[Request], BoundOutbox[T]]:
    """A function of a request that binds the outbox to the connection or session which the request carries::

        orders_of = bound_outbox(outbox, lambda request: request.state.session)
        await orders_of(request).enqueue(message)

    Where a request has no transaction of its own, `bound` opens one.
    """
    return lambda request: BoundOutbox(outbox, transaction_of(request))


def health_routes(relays: AppRelays, *, prefix: str = "/health") -> list[BaseRoute]:
    """``<prefix>/live``, ``/ready`` and ``/lag``: 200 or 503, with what `AppHealth` says as JSON."""
    return [
        Route(probe.path, _endpoint(probe), methods=["GET"], name=probe.name, include_in_schema=False)
        for probe in probes(relays.health, prefix)
    ]


def metrics_route(registry: CollectorRegistry, path: str = "/debug/prometheus") -> Route:
    """The metrics of a Prometheus registry. Anybody who reaches the application can read them."""
    from outbox_core.integrations.metrics import exposition

    async def metrics(request: Request) -> Response:
        body, content_type = exposition(registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type, **NO_STORE})

    return Route(path, metrics, methods=["GET"], name="outbox_metrics", include_in_schema=False)


def _endpoint(probe: Probe) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(_: Request) -> Response:
        status, body = probe.answer()
        return JSONResponse(body, status, headers=NO_STORE)

    return endpoint

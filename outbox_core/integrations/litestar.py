"""Litestar: a plugin that runs the relays and adds health routes, and the outbox as a dependency::

    relays = AppRelays(Settings.from_env)
    app = Litestar(handlers, plugins=[OutboxPlugin(relays)])

`docs/how-to/web.md` has the whole of it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from outbox_core.errors import ConfigError
from outbox_core.extras import needs_extra
from outbox_core.integrations.app_relays import AppRelays
from outbox_core.integrations.bound import Begin, BoundOutbox, begin_on, bound
from outbox_core.integrations.health import NO_STORE, Probe, probes

with needs_extra("litestar", feature="outbox_core.integrations.litestar"):
    from litestar import Request, Response, di, get
    from litestar.di import Provide

if TYPE_CHECKING:
    from litestar import Litestar
    from litestar.config.app import AppConfig
    from litestar.handlers import HTTPRouteHandler
    from prometheus_client import CollectorRegistry

    from outbox_core.outbox import Outbox

__all__ = [
    "AppRelays",
    "BoundOutbox",
    "OutboxPlugin",
    "begin_on",
    "bound",
    "bound_outbox",
    "health_handlers",
    "metrics_handler",
    "outbox_transaction",
]


class _HasLifespan(Protocol):
    """The part of Litestar's configuration that its own annotations leave half unknown."""

    lifespan: list[Any]


class OutboxPlugin:
    """Runs the relays in the application's lifespan and adds ``<health>/live``, ``/ready`` and ``/lag``, which answer
    200 or 503 with what `AppHealth` says as JSON; None adds no route.

    Lifespans given to ``Litestar`` itself begin before the relays start and end after they have stopped, so that
    dispatchers may use what they open.
    """

    def __init__(self, relays: AppRelays, *, health: str | None = "/health") -> None:
        self._relays = relays
        self._health = health

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Called by Litestar."""
        cast("_HasLifespan", app_config).lifespan.append(self._run)
        if self._health is not None:
            app_config.route_handlers.extend(health_handlers(self._relays, prefix=self._health))
        return app_config

    @asynccontextmanager
    async def _run(self, _: Litestar) -> AsyncGenerator[None]:
        async with self._relays:
            yield


def outbox_transaction(outbox: Outbox, begin: Begin[Any]) -> Provide:
    """A dependency that opens a transaction for the request, and gives the outbox bound to it::

        @post("/orders", dependencies={"orders": outbox_transaction(outbox, sessions.begin)})
        async def place(data: Order, orders: NamedDependency[BoundOutbox]) -> None: ...

    It commits when the handler has returned and before the response is sent; whatever the handler raises rolls back.
    """

    async def transaction() -> AsyncGenerator[BoundOutbox[Any]]:
        async with bound(outbox, begin) as opened:
            yield opened

    return Provide(transaction)


def bound_outbox(outbox: Outbox, dependency: str) -> Provide:
    """A dependency that binds the outbox to the session or connection that another one, named here, gives::

        dependencies={"db_session": Provide(get_session), "orders": bound_outbox(outbox, "db_session")}

    Litestar finds that one by its name.
    """
    if not dependency.isidentifier():
        raise ConfigError(f"expected the name of a dependency, such as 'db_session', got {dependency!r}")

    async def bind(**given: Any) -> BoundOutbox[Any]:
        return BoundOutbox(outbox, given[dependency])

    # Litestar finds dependencies by the names of parameters, and this one is known only now.
    named = _named()
    parameter = inspect.Parameter(dependency, inspect.Parameter.KEYWORD_ONLY, annotation=named)
    cast("Any", bind).__signature__ = inspect.Signature([parameter], return_annotation=BoundOutbox)
    bind.__annotations__ = {dependency: named, "return": BoundOutbox}
    return Provide(bind)


def _named() -> Any:
    """The annotation of a parameter that is found by its name; newer versions of Litestar want it marked as such."""
    marked: Any = getattr(di, "NamedDependency", None)
    return Any if marked is None else marked[Any]


def health_handlers(relays: AppRelays, *, prefix: str = "/health") -> list[HTTPRouteHandler]:
    """The handlers that the plugin adds, for an application that mounts them elsewhere."""
    return [_handler(probe) for probe in probes(relays.health, prefix)]


def metrics_handler(registry: CollectorRegistry, path: str = "/debug/prometheus") -> HTTPRouteHandler:
    """The metrics of a Prometheus registry. Anybody who reaches the application can read them."""
    from outbox_core.integrations.metrics import exposition

    @get(path, include_in_schema=False)
    async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        body, content_type = exposition(registry, request.headers.get("accept", ""))
        return Response(body, media_type=content_type, headers=NO_STORE)

    return metrics


def _handler(probe: Probe) -> HTTPRouteHandler:
    @get(probe.path, include_in_schema=False)
    async def handler() -> Response[dict[str, Any]]:
        status, body = probe.answer()
        return Response(body, status_code=status, headers=NO_STORE)

    return handler

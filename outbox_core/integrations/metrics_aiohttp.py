"""Prometheus metrics from an aiohttp application.

app.router.add_get("/metrics", metrics_handler(registry))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from outbox_core.extras import needs_extra
from outbox_core.integrations.metrics import exposition

with needs_extra("aiohttp", feature="outbox_core.integrations.metrics_aiohttp"):
    from aiohttp import web

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def metrics_handler(registry: CollectorRegistry) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers with the metrics of a registry.

    It asks nothing of whoever calls: put it where only the monitoring can reach it.
    """

    async def handle(request: web.Request) -> web.Response:
        body, content_type = exposition(registry, ",".join(request.headers.getall("Accept", [])))
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        return web.Response(body=body, headers=headers)

    return handle

"""Metrics from an ASGI application, from aiohttp and from the small server, read by the official parser."""

from __future__ import annotations

import httpx
import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from outbox_core.integrations.http import serve
from outbox_core.integrations.metrics import metrics_app, metrics_route
from outbox_core.integrations.metrics_aiohttp import metrics_handler
from outbox_core.observers.prometheus import PrometheusObserver
from tests.kit.samples import every_event

pytestmark = pytest.mark.asyncio
OPEN = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    observe = PrometheusObserver(registry)
    for event in every_event():
        observe(event)
    return registry


def check(plain: str, opened: str) -> None:
    for text, parse in ((plain, prometheus_text), (opened, open_metrics)):
        names = {family.name for family in parse(text)}
        assert {"outbox_enqueue", "outbox_dispatch_latency_seconds", "outbox_pending"} <= names


async def test_asgi(registry: CollectorRegistry) -> None:
    transport = httpx.ASGITransport(app=metrics_app(registry))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        plain, opened = await client.get("/metrics"), await client.get("/", headers=OPEN)
        check(plain.text, opened.text)
        assert plain.headers["content-type"].startswith("text/plain")
        assert opened.headers["content-type"].startswith("application/openmetrics-text")
        assert (await client.head("/")).content == b""
        refused = await client.post("/")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_aiohttp(registry: CollectorRegistry) -> None:
    app = web.Application()
    app.router.add_get("/metrics", metrics_handler(registry))
    async with TestServer(app) as server, ClientSession(timeout=ClientTimeout(10)) as client:
        url = server.make_url("/metrics")
        async with client.get(url) as plain, client.get(url, headers=OPEN) as opened:
            check(await plain.text(), await opened.text())
            assert opened.headers["content-type"].startswith("application/openmetrics-text")


async def test_the_small_server(registry: CollectorRegistry) -> None:
    async with (
        serve("127.0.0.1", 0, {"/debug/prometheus": metrics_route(registry)}) as address,
        httpx.AsyncClient(base_url=f"http://{address.host}:{address.port}", timeout=10) as client,
    ):
        plain = await client.get("/debug/prometheus")
        check(plain.text, (await client.get("/debug/prometheus", headers=OPEN)).text)

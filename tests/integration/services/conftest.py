"""A server that echoes, and a fault proxy in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.services.echo import Echo
from tests.services.proxy import FaultProxy


@pytest_asyncio.fixture
async def echo() -> Echo:
    return Echo()


@pytest_asyncio.fixture(params=["tcp", "unix"])
async def proxy(request: pytest.FixtureRequest, echo: Echo, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    """A proxy on TCP whose server listens on TCP or on a unix socket."""
    if request.param == "tcp":
        server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
        made = FaultProxy.to(*server.sockets[0].getsockname())
    else:
        server = await asyncio.start_unix_server(echo.serve, tmp_path / "echo")
        made = FaultProxy.to_unix(tmp_path / "echo")
    async with server, made:
        yield made

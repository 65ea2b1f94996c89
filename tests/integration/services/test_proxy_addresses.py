from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.services.echo import Echo, connected, read
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("proxy", ["tcp"], indirect=True)
@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgresql://u:p%40ss@db.example:5432/app", "postgresql://u:p%40ss@127.0.0.1:{port}/app"),
        ("postgresql://a:1,b:2/app?sslmode=disable", "postgresql://127.0.0.1:{port}/app?sslmode=disable"),
        ("postgresql://u:@/app?host=/run/pg&port=5433", "postgresql://u:@127.0.0.1:{port}/app"),
    ],
)
async def test_dsn_leads_through_the_proxy(proxy: FaultProxy, dsn: str, expected: str) -> None:
    assert proxy.dsn(dsn) == expected.format(port=proxy.port)


async def test_dsn_of_a_proxy_on_a_unix_socket_names_its_folder(tmp_path: Path) -> None:
    async with FaultProxy.to("127.0.0.1", 1, listen=tmp_path / ".s.PGSQL.6543") as proxy:
        assert proxy.dsn("postgresql://u@h:1/app?a=b") == f"postgresql://u@/app?a=b&host={tmp_path}&port=6543"
    async with FaultProxy.to("127.0.0.1", 1, listen=tmp_path / "other") as proxy:
        with pytest.raises(ValueError, match=r"not .*other"):
            proxy.dsn("postgresql://u@h:1/app")


@pytest.mark.parametrize("proxy", ["tcp"], indirect=True)
async def test_dsn_refuses_what_is_no_url_without_telling_it(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="postgresql://") as caught:
        proxy.dsn("host=db password=secret")
    assert "secret" not in str(caught.value)


async def test_to_postgres_finds_the_server_by_host_or_by_socket_folder(echo: Echo, tmp_path: Path) -> None:
    tcp = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(echo.serve, tmp_path / ".s.PGSQL.6000")
    port = tcp.sockets[0].getsockname()[1]
    async with tcp, unix:
        for dsn in (
            f"postgresql://u:p@127.0.0.1:{port}/app",
            f"postgresql://u:p@/app?host={tmp_path}&port=6000",
        ):
            async with FaultProxy.to_postgres(dsn) as proxy, connected(proxy) as (reader, writer):
                writer.write(b"found")
                assert await read(reader, 5) == b"found"

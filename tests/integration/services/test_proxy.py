from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.integration.services.echo import QUIET, SECONDS, Echo, connected, is_silent, read, read_to_end
from tests.services.pipe import BUFFER_BYTES
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.asyncio


async def test_passes_bytes_both_ways_and_counts_them(proxy: FaultProxy, echo: Echo) -> None:
    message = bytes(range(256)) * 2_000
    async with connected(proxy) as (reader, writer):
        writer.write(message)
        assert await read(reader, len(message)) == message
    assert echo.heard == message
    assert proxy.accepted == 1
    assert proxy.requests.forwarded == proxy.responses.forwarded == len(message)


async def test_forwards_a_half_close_and_still_delivers_the_answer(proxy: FaultProxy, echo: Echo) -> None:
    async with connected(proxy) as (reader, writer):
        writer.write(b"bye")
        writer.write_eof()
        assert await read_to_end(reader) == b"bye<end>"
    assert echo.ends == 1


async def test_held_requests_do_not_reach_the_server_until_healed(proxy: FaultProxy, echo: Echo) -> None:
    async with connected(proxy) as (reader, writer):
        proxy.hold_requests()
        writer.write(b"first ")
        await proxy.wait_for(lambda seen: seen.requests.held == 6)
        writer.write(b"second")
        await proxy.wait_for(lambda seen: seen.requests.held == 12)
        assert await is_silent(reader)
        assert echo.heard == b""

        proxy.pass_through()
        assert await read(reader, 12) == b"first second"
        assert proxy.requests.held == 0


async def test_held_responses_reached_the_server_and_arrive_once_healed(
    proxy: FaultProxy, echo: Echo
) -> None:
    async with connected(proxy) as (reader, writer):
        proxy.hold_responses()
        writer.write(b"order")
        await proxy.wait_for(lambda seen: seen.responses.held == 5)
        assert echo.heard == b"order"
        assert await is_silent(reader)

        proxy.pass_through()
        assert await read(reader, 5) == b"order"


async def test_rules_apply_to_connections_made_later(proxy: FaultProxy) -> None:
    proxy.hold_responses()
    async with connected(proxy) as (reader, writer):
        writer.write(b"late")
        await proxy.wait_for(lambda seen: seen.responses.held == 4)
        assert await is_silent(reader)


async def test_a_black_hole_holds_the_end_of_stream_too(proxy: FaultProxy, echo: Echo) -> None:
    async with connected(proxy) as (reader, writer):
        writer.write(b"x")
        await read(reader, 1)
        proxy.hold()
        writer.write_eof()
        assert await is_silent(reader)
        assert echo.ends == 0

        proxy.pass_through()
        assert await read_to_end(reader) == b"<end>"


async def test_a_sender_blocks_when_the_buffer_of_a_held_direction_is_full(proxy: FaultProxy) -> None:
    async with connected(proxy) as (_, writer):
        proxy.hold_requests()
        writer.write(bytes(64 * BUFFER_BYTES))
        await proxy.wait_for(lambda seen: seen.requests.held >= BUFFER_BYTES)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUIET):
                await writer.drain()
        assert proxy.requests.held < 2 * BUFFER_BYTES
        writer.transport.abort()


async def test_reset_breaks_both_ends_and_loses_what_was_held(proxy: FaultProxy, echo: Echo) -> None:
    async with connected(proxy) as (reader, writer):
        proxy.hold_responses()
        writer.write(b"lost")
        await proxy.wait_for(lambda seen: seen.responses.held == 4)

        assert proxy.reset() == 1
        with pytest.raises(ConnectionResetError):
            await read(reader, 1)
        await proxy.wait_for(lambda seen: seen.responses.held == 0)
        assert proxy.responses.forwarded == 0
        async with asyncio.timeout(SECONDS):
            while not (echo.errors or echo.ends):
                echo.changed.clear()
                await echo.changed.wait()
    assert (proxy.resets, proxy.reset()) == (1, 0)

    proxy.pass_through()
    async with connected(proxy) as (reader, writer):
        writer.write(b"again")
        assert await read(reader, 5) == b"again"


@pytest.mark.parametrize("proxy", ["tcp"], indirect=True)
async def test_reset_is_a_reset_for_the_server_not_an_end_of_stream(proxy: FaultProxy, echo: Echo) -> None:
    async with connected(proxy) as (reader, writer):
        writer.write(b"hello")
        await read(reader, 5)
        echo.changed.clear()
        proxy.reset()
        async with asyncio.timeout(SECONDS):
            await echo.changed.wait()
    assert [type(error) for error in echo.errors] == [ConnectionResetError]


async def test_cut_after_delivers_exactly_the_bytes_allowed(proxy: FaultProxy, echo: Echo) -> None:
    async with connected(proxy) as (reader, writer):
        writer.write(b"before")
        await read(reader, 6)
        proxy.cut_after(3)
        writer.write(b"answer")
        assert await read_to_end(reader) == b"ans"
    assert (proxy.cuts, echo.heard) == (1, b"beforeanswer")


async def test_cut_after_zero_requests_hides_the_request_from_the_server(
    proxy: FaultProxy, echo: Echo
) -> None:
    proxy.cut_after(0, "requests")
    async with connected(proxy) as (reader, writer):
        writer.write(b"never heard")
        assert await read_to_end(reader) == b""
    await proxy.wait_for(lambda seen: seen.cuts == 1)
    assert echo.heard == b""


async def test_delay_postpones_each_way(proxy: FaultProxy) -> None:
    proxy.delay(0.1)
    async with connected(proxy) as (reader, writer):
        started = time.monotonic()
        writer.write(b"slow")
        assert await read(reader, 4) == b"slow"
        assert time.monotonic() - started >= 0.2


async def test_healing_ends_a_long_delay_at_once(proxy: FaultProxy) -> None:
    proxy.delay(600)
    async with connected(proxy) as (reader, writer):
        writer.write(b"late")
        await proxy.wait_for(lambda seen: seen.requests.held == 4)
        proxy.pass_through()
        assert await read(reader, 4) == b"late"


async def test_delay_of_one_direction_leaves_the_other_alone(proxy: FaultProxy, echo: Echo) -> None:
    proxy.delay(600, "responses")
    async with connected(proxy) as (_, writer):
        writer.write(b"there")
        await proxy.wait_for(lambda seen: seen.responses.held == 5)
    assert echo.heard == b"there"


async def test_throttle_limits_the_rate(proxy: FaultProxy) -> None:
    proxy.throttle(10_000, "responses")
    async with connected(proxy) as (reader, writer):
        started = time.monotonic()
        writer.write(bytes(3_000))
        assert await read(reader, 3_000) == bytes(3_000)
        # The first step of 200 bytes leaves at once.
        assert time.monotonic() - started >= 0.28


async def test_refuse_resets_new_connections_and_spares_open_ones(proxy: FaultProxy) -> None:
    async with connected(proxy) as (reader, writer):
        writer.write(b"open")
        await read(reader, 4)
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            async with connected(proxy) as (late, _):
                await read(late, 1)
        writer.write(b"still")
        assert await read(reader, 5) == b"still"
    assert (proxy.accepted, proxy.refused) == (1, 1)

    proxy.pass_through()
    async with connected(proxy) as (reader, writer):
        writer.write(b"back")
        assert await read(reader, 4) == b"back"


async def test_an_unreachable_server_resets_the_client(tmp_path: Path) -> None:
    async with FaultProxy.to_unix(tmp_path / "nobody") as proxy:
        with pytest.raises(ConnectionResetError):
            async with connected(proxy) as (reader, _):
                await read(reader, 1)
        assert proxy.unreachable == 1


async def test_listens_on_a_unix_socket_and_removes_it(echo: Echo, tmp_path: Path) -> None:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    path = tmp_path / "front"
    async with server:
        async with FaultProxy.to(*server.sockets[0].getsockname(), listen=path) as proxy:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"unix")
            assert await read(reader, 4) == b"unix"
            proxy.reset()
            assert await read_to_end(reader) == b""
            writer.close()
            await writer.wait_closed()
        assert not path.exists()


async def test_closing_ends_held_connections_and_leaves_no_task(proxy: FaultProxy) -> None:
    before = asyncio.all_tasks()
    async with connected(proxy) as (reader, writer):
        proxy.hold()
        writer.write(b"stuck")
        await proxy.wait_for(lambda seen: seen.requests.held == 5)
        address = proxy.address
        await proxy.close()
        assert {task for task in asyncio.all_tasks() - before if "proxy" in task.get_name()} == set()
        assert await read_to_end(reader) == b""
        assert proxy.requests.held == 0
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        await proxy.close()


async def test_a_cancelled_user_still_closes_the_proxy(echo: Echo) -> None:
    entered: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()

    async def use() -> None:
        async with FaultProxy.to("127.0.0.1", 1) as proxy:
            entered.set_result(proxy.address)
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    address = await entered
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_wait_for_tells_the_counters_when_the_fault_was_not_hit(proxy: FaultProxy) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.01 s.*accepted=0"):
        await proxy.wait_for(lambda seen: seen.accepted > 0, 0.01)

"""A relay and its process: signals, the end of an event loop, another loop, a forked child."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.integration.relay.bench import Bench

pytestmark = pytest.mark.asyncio
_ROOT = Path(__file__).parents[3]


def script(body: str) -> str:
    return textwrap.dedent(
        f"""
        import asyncio, os, signal, sys, time
        from outbox_core.relay import Relay
        from tests.integration.relay.bench import TABLE
        from tests.kit.settings import QUICK_POSTGRES
        started = 0
        async def dispatch(message):
            global started
            started += 1
            await asyncio.sleep(0 if message.payload == b"1" else 30)
        def relay(**more):
            settings = QUICK_POSTGRES | {{"dispatch_timeout": 5.0, "lock_ttl": 30.0}} | more
            return Relay(sys.argv[1], table=TABLE, dispatcher=dispatch, **settings)
        {textwrap.indent(textwrap.dedent(body), "        ").strip()}
        """
    )


async def run_script(
    bench: Bench, body: str, then: Callable[[int], Awaitable[None]] | None = None
) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script(body), bench.dsn, cwd=_ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(30):
            if then is not None:
                await then(process.pid)
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_a_process_in_order(bench: Bench, number: signal.Signals) -> None:
    await bench.enqueue(1)

    async def stop(pid: int) -> None:
        await bench.settled()
        os.kill(pid, number)

    code, output = await run_script(bench, 'asyncio.run(relay().run(grace=2.0)); print("ended")', stop)
    assert (code, output) == (0, "ended\n")
    await bench.nothing_is_left()


async def test_the_end_of_asyncio_run_ends_a_relay_that_nobody_stopped(bench: Bench) -> None:
    """Also with a dispatch in flight; and the same object starts again on the next loop."""
    await bench.enqueue(2)
    code, output = await run_script(
        bench,
        """
        shared = relay()
        async def main(wanted):
            await shared.start()
            while started < wanted:
                await asyncio.sleep(0.01)
        asyncio.run(main(1))
        print(shared.state)
        asyncio.run(main(1))
        print(shared.state)
        """,
    )
    assert (code, output) == (0, "stopped\nstopped\n")
    await bench.nothing_is_left()


async def test_another_loop_and_a_forked_child_get_a_clear_error(bench: Bench) -> None:
    code, output = await run_script(
        bench,
        """
        import threading
        from outbox_core.errors import ConfigError
        async def attempt(call):
            try:
                await call()
            except ConfigError as error:
                print(error)
        async def main():
            shared = relay()
            async with shared:
                for call in (shared.start, shared.stop, shared.wait):
                    thread = threading.Thread(target=lambda: asyncio.run(attempt(call)))
                    thread.start()
                    await asyncio.to_thread(thread.join)
                print(shared.state)
            sys.stdout.flush()
            shared = relay()
            await shared.start()
            child = os.fork()
            if child == 0:
                asyncio.run(attempt(shared.stop))
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(child, 0)
            print(shared.state)
            await shared.stop()
        asyncio.run(main())
        """,
    )
    other = (
        "this relay runs on another event loop or in another process, which alone can stop it or wait for it;"
        " make a Relay for each"
    )
    assert (code, output.splitlines()) == (0, [other, other, other, "running", other, "running"])
    await bench.nothing_is_left()

"""One life: starting, running, stopping, stopped; whatever is called in whichever order, and whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.errors import BrokerUnavailable, ConfigError, RelayFailed
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed, LeaderGained, Released, Stopped
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.store import Claim, Row
from outbox_core.stores.memory import MemoryStore
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.bench import QUICK, TABLE, Bench, ignore, prepared, until
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio
_ROOT = Path(__file__).parents[3]


@pytest_asyncio.fixture
async def bench(database: Database) -> AsyncIterator[Bench]:
    async with prepared(database) as bench:
        yield bench


def relay_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if "outbox" in repr(task)]


class Gate:
    """A dispatcher that holds every message until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.inside = 0

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.inside += 1
        await self.opened.wait()


async def test_the_states_of_a_life(bench: Bench) -> None:
    gate = Gate()
    relay = bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0)
    assert relay.state == "stopped"
    starting = asyncio.create_task(relay.start())
    await until(lambda: relay.state == "starting")
    await starting
    assert relay.state == "running"
    await bench.enqueue(1)
    await until(lambda: gate.inside == 1)
    stopping = asyncio.create_task(relay.stop(grace=5.0))
    await until(lambda: relay.state == "stopping")
    gate.opened.set()
    await stopping
    assert relay.state == "stopped"
    assert await bench.states() == {"published": 1}
    await bench.nothing_is_left()


async def test_stop_before_start_stop_twice_and_start_again(bench: Bench) -> None:
    relay = bench.relay(ignore)
    await relay.stop()
    await relay.wait()
    for payload in (1, 2):
        await bench.enqueue(payload)
        await relay.start()
        assert await bench.settled() == {"published": payload}
        await asyncio.gather(relay.stop(), relay.stop())
        await relay.stop()
        await relay.wait()
        assert relay.state == "stopped"
    assert len(bench.heard.of(Stopped)) == 2
    await bench.nothing_is_left()


async def test_starting_twice_is_refused_and_harms_nothing(bench: Bench) -> None:
    async with bench.relay(ignore) as relay:
        for again in (relay.start, relay.run, relay.drain, relay.run_once):
            with pytest.raises(
                ConfigError, match="this relay is already running; one object runs once at a time"
            ):
                await again()
        await bench.enqueue(1)
        assert await bench.settled() == {"published": 1}


async def test_negative_grace_is_refused(bench: Bench) -> None:
    async with bench.relay(ignore) as relay:
        with pytest.raises(
            ConfigError, match=r"grace must be a number of seconds that is not negative, got -1"
        ):
            await relay.stop(-1)
        assert relay.state == "running"


async def test_stop_waits_for_what_is_in_dispatch_and_gives_back_the_rest(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(10))
    relay = bench.relay(gate, concurrency=3, dispatch_timeout=5.0, lock_ttl=30.0)
    await relay.start()
    await until(lambda: gate.inside == 3)
    stopping = asyncio.create_task(relay.stop(grace=5.0))

    async def given_back() -> bool:
        return await bench.states() == {"in_flight": 3, "pending": 7}

    await until(given_back)
    assert not stopping.done()
    gate.opened.set()
    await stopping
    rows = await bench.rows()
    assert [row["state"] for row in rows] == ["published"] * 3 + ["pending"] * 7
    assert [row["attempts"] for row in rows] == [1] * 3 + [0] * 7
    assert [(event.rows, event.reason) for event in bench.heard.of(Released)] == [(7, "the relay stopped")]


async def test_no_claim_after_stop_was_called(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(1)
    relay = bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0)
    await relay.start()
    await until(lambda: gate.inside == 1)
    stopping = asyncio.create_task(relay.stop(grace=1.0))
    await until(lambda: relay.state == "stopping")
    await bench.enqueue(2)
    await stopping
    assert gate.inside == 1
    assert [row["attempts"] for row in await bench.rows()] == [1, 0]


@pytest.mark.parametrize("grace", [0.0, 0.4])
async def test_stop_is_back_within_its_grace_and_a_second(bench: Bench, grace: float) -> None:
    gate = Gate()
    await bench.enqueue(*range(5))
    relay = bench.relay(gate, dispatch_timeout=20.0, lock_ttl=60.0)
    await relay.start()
    await until(lambda: gate.inside == 5)
    began = time.monotonic()
    await relay.stop(grace)
    assert grace <= time.monotonic() - began < grace + 1.5
    await relay.wait()
    assert await bench.states() == {"pending": 5}
    assert {row["last_error"] for row in await bench.rows()} == {
        "TX.INTERRUPTED the relay stopped before the dispatch ended"
    }


async def test_a_second_stop_shortens_the_first(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(1)
    relay = bench.relay(gate, dispatch_timeout=20.0, lock_ttl=60.0)
    await relay.start()
    await until(lambda: gate.inside == 1)
    first = asyncio.create_task(relay.stop(grace=15.0))
    await until(lambda: relay.state == "stopping")
    began = time.monotonic()
    await relay.stop(grace=0.1)
    await first
    assert time.monotonic() - began < 3


async def test_stop_while_starting_does_not_wait_for_the_start(bench: Bench) -> None:
    entered = asyncio.Event()

    class Slow(Gate):
        async def __aenter__(self) -> None:
            entered.set()
            await asyncio.Event().wait()

        async def __aexit__(self, *error: object) -> None: ...

    relay = bench.relay(Slow(), dispatch_timeout=20.0, lock_ttl=60.0)
    starting = asyncio.create_task(relay.start())
    await entered.wait()
    began = time.monotonic()
    await relay.stop(grace=0.1)
    assert time.monotonic() - began < 2
    assert relay.state == "stopped"
    await starting
    await bench.nothing_is_left()


async def test_cancelling_start_leaves_nothing(bench: Bench) -> None:
    entered = asyncio.Event()

    class Slow(Gate):
        async def __aenter__(self) -> None:
            entered.set()
            await asyncio.Event().wait()

        async def __aexit__(self, *error: object) -> None: ...

    relay = bench.relay(Slow(), dispatch_timeout=20.0, lock_ttl=60.0)
    starting = asyncio.create_task(relay.start())
    await entered.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert relay.state == "stopped"
    assert not relay_tasks()
    await bench.nothing_is_left()


class Failing(PostgresStore):
    """A store with a defect: at some claim it raises what nobody expects."""

    def __init__(self, dsn: str, failing: Callable[[], bool]) -> None:
        super().__init__(dsn, takeover=2.0)
        self._failing = failing

    async def claim(self, table: TableName, claim: Claim) -> list[Row]:
        if self._failing():
            raise ZeroDivisionError("a defect")
        return await super().claim(table, claim)


async def test_a_dead_inner_task_ends_the_relay_with_its_error(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """No task is left, and what was in dispatch is not left to itself."""
    gate = Gate()
    relay = Relay(
        lambda: Failing(bench.dsn, lambda: gate.inside > 0),
        table=TABLE,
        dispatcher=gate,
        **(QUICK | {"dispatch_timeout": 5.0, "lock_ttl": 30.0}),
    )
    await bench.enqueue(1)
    await relay.start()
    with pytest.raises(RelayFailed) as raised:
        await relay.wait()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert relay.state == "stopped"
    assert not relay_tasks()
    assert "the relay ended with ZeroDivisionError" in caplog.text
    await bench.nothing_is_left()
    relay = bench.relay(ignore, lock_ttl=8.0)
    async with relay:
        assert await bench.settled(30) == {"published": 1}


async def test_the_error_reaches_the_end_of_the_block_and_run(bench: Bench) -> None:
    def relay() -> Relay:
        return Relay(lambda: Failing(bench.dsn, lambda: True), table=TABLE, dispatcher=ignore, **QUICK)

    with pytest.raises(ZeroDivisionError):
        await relay().run(signals=False)
    started = relay()
    # The check of rights at the start claims, too.
    with pytest.raises(ZeroDivisionError):
        await started.start()
    failing = False
    late = Relay(lambda: Failing(bench.dsn, lambda: failing), table=TABLE, dispatcher=ignore, **QUICK)
    with pytest.raises(RelayFailed):  # noqa: PT012 - the end of the block raises
        async with late:
            failing = True
            await until(lambda: late.state == "stopped")


@pytest.mark.parametrize("form", ["run", "drain"])
async def test_cancelling_stops_in_order(bench: Bench, form: str) -> None:
    gate = Gate()
    await bench.enqueue(*range(4))
    relay = bench.relay(gate, concurrency=2, dispatch_timeout=5.0, lock_ttl=30.0)
    running = asyncio.create_task(relay.run(signals=False) if form == "run" else relay.drain())
    await until(lambda: gate.inside == 2)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 3
    assert relay.state == "stopped"
    rows = await bench.rows()
    assert [(row["state"], row["attempts"]) for row in rows] == [("pending", 1)] * 2 + [("pending", 0)] * 2
    assert not relay_tasks()
    await bench.nothing_is_left()


async def test_cancelling_again_stops_at_once(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(1)
    relay = bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0)
    running = asyncio.create_task(relay.run(signals=False))
    await until(lambda: gate.inside == 1)
    running.cancel()
    await until(lambda: relay.state == "stopping")
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 1
    assert not relay_tasks()
    await bench.nothing_is_left()


async def test_stop_ends_a_drain(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(3))
    relay = bench.relay(gate, concurrency=1, dispatch_timeout=5.0, lock_ttl=30.0)
    draining = asyncio.create_task(relay.drain(timeout=20.0))
    await until(lambda: gate.inside == 1)
    await relay.stop(grace=0.1)
    assert await draining == 0
    assert await bench.states() == {"pending": 3}


async def test_drain_returns_what_was_published_and_leaves_what_is_not_due(bench: Bench) -> None:
    await bench.enqueue(*range(250))
    await bench.enqueue("later", delay=timedelta(hours=1))

    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == b"7":
            raise ValueError("not this one")

    relay = bench.relay(dispatch, backoff_base=60.0, backoff_cap=60.0)
    assert await relay.drain() == 249
    assert await bench.states() == {"published": 249, "pending": 2}
    assert await relay.drain() == 0
    assert relay.state == "stopped"


@pytest.mark.parametrize("keys", [[None], ["one"], ["one", "two", "three"]])
async def test_drain_ends_while_the_destination_is_away(bench: Bench, keys: list[str | None]) -> None:
    async def dispatch(message: DispatchedMessage) -> None:
        raise BrokerUnavailable("away")

    for key in keys:
        await bench.enqueue(1, 2, key=key)
    relay = bench.relay(dispatch, backoff_base=60.0, backoff_cap=60.0, concurrency=1)
    assert await relay.drain(timeout=10.0) == 0
    assert {(row["state"], row["attempts"]) for row in await bench.rows()} == {("pending", 0)}


async def test_drain_that_is_not_done_in_time_says_so_and_gives_everything_back(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(3))
    relay = bench.relay(gate, concurrency=1, dispatch_timeout=2.0, lock_ttl=30.0)
    with pytest.raises(TimeoutError, match=r"not everything that is due was delivered within 0\.3 s"):
        await relay.drain(timeout=0.3)
    assert await bench.states() == {"pending": 3}
    assert not relay_tasks()


async def test_run_once_delivers_what_is_due(bench: Bench) -> None:
    await bench.enqueue(1, 2, 3)
    assert await bench.relay(ignore).run_once() == 3
    assert await bench.states() == {"published": 3}
    await bench.nothing_is_left()


async def test_run_once_returns_0_while_another_relay_leads(bench: Bench) -> None:
    async with bench.relay(ignore):
        await until(lambda: bool(bench.heard.of(LeaderGained)))
        assert await bench.relay(ignore).run_once(timeout=0.3) == 0


async def test_one_relay_serves_many_tables(bench: Bench, database: Database) -> None:
    tables = [TABLE, "shop.invoices_outbox", "shop.mails_outbox"]
    for table in tables[1:]:
        await schema.create(bench.connection, table)
    for table in tables:
        async with bench.connection.transaction():
            await Outbox(table).enqueue(bench.connection, Message("a.b", table))
    seen: list[str] = []

    async def dispatch(message: DispatchedMessage) -> None:
        seen.append(message.meta.table)

    async with Relay(bench.dsn, tables=tables, dispatcher=dispatch, **QUICK):
        await until(lambda: sorted(seen) == sorted(tables))
        assert await bench.sessions() <= 5
    await bench.nothing_is_left()


async def test_sixty_cycles_leave_no_task_session_or_lock(bench: Bench) -> None:
    relay = bench.relay(ignore)
    before = len(asyncio.all_tasks())
    for cycle in range(60):
        await bench.enqueue(cycle)
        await relay.start()
        if cycle % 3:
            await bench.settled()
        await relay.stop(grace=1.0)
        assert len(asyncio.all_tasks()) == before
    await bench.nothing_is_left()
    assert await relay.drain() >= 0
    assert await bench.states() == {"published": 60}


async def test_five_hundred_cycles_leave_no_task() -> None:
    store = MemoryStore()
    outbox = Outbox(TABLE)
    relay = Relay(lambda: store, table=TABLE, dispatcher=ignore, **QUICK)
    before = asyncio.all_tasks()
    for cycle in range(500):
        async with store.transaction() as transaction:
            await outbox.enqueue(transaction, Message("a.b", cycle))
        await relay.start()
        await relay.stop(grace=1.0)
        assert asyncio.all_tasks() == before
    await relay.drain()
    assert {row.state for row in store.table(TableName.parse(TABLE)).rows.values()} == {"published"}


async def test_nothing_is_claimed_while_idle_more_often_than_the_poll_interval_says(bench: Bench) -> None:
    async with bench.relay(ignore, poll_interval=0.2) as relay:
        await bench.enqueue(1)
        await bench.settled()
        claims = len(bench.heard.of(Claimed))
        busy = time.process_time()
        await asyncio.sleep(1.0)  # an idle second
        assert time.process_time() - busy < 0.5
        assert len(bench.heard.of(Claimed)) == claims
        assert relay.state == "running"


def script(body: str) -> str:
    return textwrap.dedent(
        f"""
        import asyncio, os, signal, sys, time
        from outbox_core.relay import Relay
        from tests.integration.relay.bench import QUICK, TABLE
        started = 0
        async def dispatch(message):
            global started
            started += 1
            await asyncio.sleep(0 if message.payload == b"1" else 30)
        def relay(**more):
            settings = QUICK | {{"dispatch_timeout": 5.0, "lock_ttl": 30.0}} | more
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


async def test_wait_waits_for_a_run_in_the_foreground_too(bench: Bench) -> None:
    relay = bench.relay(ignore)
    running = asyncio.create_task(relay.run(signals=False))
    await until(lambda: _is(relay, "running"), 10)
    waiting = asyncio.create_task(relay.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    await relay.stop(1)
    await asyncio.wait_for(asyncio.gather(running, waiting), 5)


async def _is(relay: Relay, state: str) -> bool:
    return relay.state == state


async def test_run_once_leaves_a_table_to_the_relay_that_leads_it(bench: Bench) -> None:
    async with bench.relay(ignore):
        started = time.monotonic()
        assert await bench.relay(ignore).run_once(timeout=20) == 0
        assert time.monotonic() - started < 10

"""What happens in the demonstration, from the first server to the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.demo.database import event_ids, prepare, query, session
from outbox_core.demo.ledger import Ledger
from outbox_core.demo.orders import OrderService
from outbox_core.demo.relays import RelayProcess
from outbox_core.demo.warehouse import Warehouse
from outbox_core.embedded import EmbeddedNats, EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_core.demo.plan import Plan
    from outbox_core.demo.stage import Figures, Stage

_LOOK_INTERVAL: Final = 0.1
_RELAY_TIMEOUT: Final = 12.0
"""Seconds in which a relay that was started must have delivered something."""


async def perform(plan: Plan, stage: Stage) -> Ledger:
    """Start the servers, take orders, break things, mend them, and give the account.

    Everything that was started has ended, and its folders are gone, when this returns or raises.
    """
    stage.tell("starting a PostgreSQL and a NATS JetStream of this run's own", "calm")
    async with EmbeddedPostgres() as postgres, EmbeddedNats() as nats:
        await prepare(postgres.url)
        async with (
            Warehouse(nats.url, postgres.url, stage.figures) as warehouse,
            RelayProcess(postgres.url, nats.url, nats.folder) as relay,
        ):
            stage.tell(f"PostgreSQL is at {postgres.url}, NATS at {nats.url}", "calm")
            service = OrderService(postgres.url, plan, stage.figures)
            async with anyio.create_task_group() as tasks:
                for work in (service.run, warehouse.run, relay.watch, postgres.watch, nats.watch):
                    tasks.start_soon(work)
                tasks.start_soon(_look, postgres.url, stage.figures)
                await _acts(plan, stage, relay, nats)
                await service.close()
                stage.tell("no more orders; what is still due is delivered", "calm")
                await _drain(stage.figures, warehouse, plan.drain_timeout)
                tasks.cancel_scope.cancel()
            async with session(postgres.url) as connection:
                found = await event_ids(connection)
    return Ledger(
        acknowledged=service.acknowledged,
        rolled_back=service.rolled_back,
        committed=found["committed"],
        published=found["published"],
        consumed=found["consumed"],
        duplicates=stage.figures.duplicates,
        dead=len(found["dead"]),
    )


async def _acts(plan: Plan, stage: Stage, relay: RelayProcess, nats: EmbeddedNats) -> None:
    async def pause(share: float) -> None:
        await anyio.sleep(plan.duration * share)

    async def delivered_more() -> None:
        """Wait for the relay at work; a slow machine may take its time over starting one."""
        before = stage.figures.published
        await _until(lambda: stage.figures.published > before, _RELAY_TIMEOUT)

    stage.tell(f"orders come in, {plan.rate} a second; every {plan.refused_every}th is rolled back", "calm")
    await delivered_more()
    stage.tell("the relay is at work", "calm")
    await pause(plan.calm)
    await nats.freeze()
    stage.tell("kill -STOP: the broker is frozen", "broken")
    await pause(plan.frozen)
    pid = await relay.kill()
    stage.tell(f"kill -9 {pid}: the relay is dead, with messages under way", "broken")
    await pause(plan.dead)
    pid = await relay.start()
    stage.tell(f"another relay is started, process {pid}", "mended")
    await pause(plan.replaced)
    await nats.thaw()
    stage.tell("kill -CONT: the broker goes on where it stood", "mended")
    await delivered_more()
    stage.tell("the new relay delivers what has piled up", "mended")
    await pause(plan.mended)


async def _look(url: str, figures: Figures) -> None:
    async with session(url) as connection:
        while True:
            row = await connection.fetchrow(query("figures"))
            if row is not None:
                figures.published, figures.backlog = row["published"], row["backlog"]
            await anyio.sleep(_LOOK_INTERVAL)


async def _drain(figures: Figures, warehouse: Warehouse, timeout: float) -> None:
    """Wait until all is delivered and taken in, but not for ever: the ledger tells what is missing."""
    with anyio.move_on_after(timeout):
        await _until(lambda: figures.published == figures.enqueued == figures.consumed, timeout)
        while True:
            if await warehouse.caught_up():
                return
            await anyio.sleep(_LOOK_INTERVAL)


async def _until(reached: Callable[[], bool], timeout: float) -> None:
    with anyio.move_on_after(timeout):
        while True:
            if reached():
                return
            await anyio.sleep(_LOOK_INTERVAL)

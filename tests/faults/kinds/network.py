"""The network holds, loses, resets and slows what is sent."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

from tests.faults.journal import NotHit, eventually
from tests.faults.world import World
from tests.services.proxy import FaultProxy

FEEL_SECONDS = 15.0
TRANSACTION_SECONDS = 0.015
COMMIT_TRIES = 15


async def cut_database(world: World) -> str:
    """A black hole between the relay that works and its database."""
    relay, began = await world.until_leader(), time.monotonic()
    proxy = world.proxy_of(relay)
    proxy.hold()
    try:
        felt = await world.events.until(
            began, "Reconnecting", "LeaderLost", within=FEEL_SECONDS, relay=relay.name
        )
    finally:
        proxy.pass_through()
    return f"{relay.base} said {felt[0]['name']} after {felt[0]['at'] - began:.1f} s"


async def lose_database_answers(world: World) -> str:
    """What a relay's database answers is dropped: the statement is done and nobody knows."""
    relay = await world.until_leader()
    return f"dropped {await _drop_answers(world.proxy_of(relay))} bytes of answers to {relay.base}"


async def lose_commit_answers(world: World) -> str:
    """What the writers' database answers is dropped, until one is left in doubt about what it did commit."""
    began, dropped = time.monotonic(), 0
    for _ in range(COMMIT_TRIES):
        await _in_a_transaction(world)
        dropped += await _drop_answers(world.writer_proxy)
        await eventually(lambda: _in_doubt(world, began), FEEL_SECONDS, "no writer was left in doubt")
        ids = [UUID(event_id) for line in _in_doubt(world, began) for event_id in line["kept"]]
        async with world.admin() as admin:
            committed = await admin.fetchval(
                "SELECT count(*) FROM faults_ledger WHERE event_id = ANY ($1::uuid[])", ids
            )
        if committed:
            return f"dropped {dropped} bytes; {len(ids)} messages in doubt, {committed} of them committed"
        await asyncio.sleep(0.3)
    raise NotHit(f"of {len(ids)} messages in doubt none was committed")


async def _in_a_transaction(world: World) -> None:
    """Wait until a writer begins one, and then for some of the time it takes: its COMMIT is to be the next answer."""
    begun = sum(line["kind"] == "invoke" for line in world.history.lines())
    deadline = time.monotonic() + FEEL_SECONDS
    while sum(line["kind"] == "invoke" for line in world.history.lines()) == begun:
        if time.monotonic() > deadline:
            raise NotHit(f"no writer began a transaction within {FEEL_SECONDS:g} s")
        await asyncio.sleep(0.001)
    await asyncio.sleep(world.random.uniform(0.0, TRANSACTION_SECONDS))


def _in_doubt(world: World, since: float) -> list[dict[str, Any]]:
    return [line for line in world.history.since(since) if line["kind"] == "info"]


async def reset_database(world: World) -> str:
    """Every connection of every relay to the database is reset."""
    return _all_reset(world.relay_proxies)


async def cut_broker(world: World) -> str:
    """A black hole between the relays and the broker."""
    await world.until_leader()
    began = time.monotonic()
    world.broker_proxy.hold()
    try:
        felt = await world.events.until(began, "BreakerOpened", "Failed", within=FEEL_SECONDS)
    finally:
        world.broker_proxy.pass_through()
    return f"{felt[0]['name']} after {felt[0]['at'] - began:.1f} s"


async def lose_broker_answers(world: World) -> str:
    """Acknowledgements are dropped: the broker has the messages and the relay does not know."""
    await world.until_leader()
    return f"dropped {await _drop_answers(world.broker_proxy)} bytes of answers"


async def reset_broker(world: World) -> str:
    """Every connection to the broker is reset."""
    return _all_reset([world.broker_proxy])


async def refuse_broker(world: World) -> str:
    """The broker's port takes nobody for a while."""
    began = time.monotonic()
    world.broker_proxy.refuse()
    world.broker_proxy.reset()
    try:
        felt = await world.events.until(began, "BreakerOpened", "Failed", within=FEEL_SECONDS)
        await world.broker_proxy.wait_for(lambda proxy: proxy.refused > 0, within=FEEL_SECONDS)
    finally:
        world.broker_proxy.pass_through()
    return (
        f"{felt[0]['name']} after {felt[0]['at'] - began:.1f} s, {world.broker_proxy.refused} refused so far"
    )


async def slow_broker(world: World) -> str:
    """Every byte to and from the broker takes longer than a dispatch may."""
    began = time.monotonic()
    world.broker_proxy.delay(world.plan.settings["dispatch_timeout"] + 0.5)
    try:
        felt = await world.events.until(began, "BreakerOpened", "Failed", within=FEEL_SECONDS)
    finally:
        world.broker_proxy.pass_through()
    return f"{felt[0]['name']} after {felt[0]['at'] - began:.1f} s"


async def narrow_broker(world: World) -> str:
    """A connection to the broker that carries 2 kB a second."""
    world.broker_proxy.throttle(2_000)
    try:
        await world.broker_proxy.wait_for(lambda proxy: proxy.requests.held > 0, within=FEEL_SECONDS)
        held = world.broker_proxy.requests.held
        await asyncio.sleep(3.0)
    finally:
        world.broker_proxy.pass_through()
    return f"{held} bytes waited"


async def _drop_answers(proxy: FaultProxy) -> int:
    proxy.hold_responses()
    try:
        await proxy.wait_for(lambda proxy: proxy.responses.held > 0, within=FEEL_SECONDS)
        dropped = proxy.responses.held
        proxy.reset()
    finally:
        proxy.pass_through()
    return dropped


def _all_reset(proxies: list[FaultProxy]) -> str:
    count = sum(proxy.reset() for proxy in proxies)
    if not count:
        raise NotHit("there was no connection to reset")
    return f"reset {count} connections"


DATABASE_FAULTS = (cut_database, lose_database_answers, lose_commit_answers, reset_database)
BROKER_FAULTS = (cut_broker, lose_broker_answers, reset_broker, refuse_broker, slow_broker, narrow_broker)
FAULTS = (*DATABASE_FAULTS, *BROKER_FAULTS)

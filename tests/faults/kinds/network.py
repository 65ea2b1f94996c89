"""The network holds, loses, resets and slows what is sent."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

from tests.faults.journal import NotHit, eventually, promised
from tests.faults.kinds.anew import accepts_more_than, connected_anew
from tests.faults.kinds.in_hand import came_to
from tests.faults.world import World
from tests.services.proxy import FaultProxy

FEEL_SECONDS = 15.0
TRANSACTION_SECONDS = 0.015
COMMIT_TRIES = 15
NARROW_BYTES = 1_000
"""What must have gone through the narrow line before anything that is acknowledged counts as gone through it."""


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
    """What a relay's database answers is dropped from the moment on at which it records what was acknowledged."""
    relay, began = await world.until_leader(), time.monotonic()
    proxy = world.proxy_of(relay)
    relay.order("publish.before", 1, "stop")
    async with world.admin() as admin:
        try:
            await came_to(world, relay, "publish.before", began)
            proxy.hold_responses()
            last = await admin.fetchval("SELECT max(number) FROM faults_trail")
            held = time.monotonic()
        finally:
            relay.order()
            relay.thaw()
        try:
            (felt, *_) = await world.events.until(
                held, "Reconnecting", "LeaderLost", within=FEEL_SECONDS, relay=relay.name
            )
            dropped = proxy.responses.held
            proxy.reset()
        finally:
            proxy.pass_through()
            world.back = time.monotonic()
        # Every answer since the hold is lost, so what the trail has since then was done without the relay's knowledge.
        done = await admin.fetchval(
            "SELECT count(*) FROM faults_trail WHERE number > $1 AND who = $2", last, relay.name
        )
    if not dropped or not done:
        raise NotHit(f"{dropped} bytes of answers were dropped, of {done} changes")
    return (
        f"dropped {dropped} bytes of answers to {relay.base}: "
        f"{done} changes of its were done, and it said {felt['name']}"
    )


async def lose_commit_answers(world: World) -> str:
    """What the writers' database answers is dropped, until one is left in doubt about what it did commit."""
    began, dropped, ids = time.monotonic(), 0, list[UUID]()
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
    """Every connection of every relay to the database is reset; each comes back, and who led says that it does not."""
    relay, began = await world.until_leader(), time.monotonic()
    before = {proxy: proxy.accepted for proxy in world.relay_proxies}
    counts = {proxy: proxy.reset() for proxy in world.relay_proxies}
    world.back = time.monotonic()
    if not counts[world.proxy_of(relay)]:
        raise NotHit(f"{sum(counts.values())} connections were reset, none of the relay that worked")
    hit = {proxy: before[proxy] for proxy, count in counts.items() if count}
    said = await connected_anew(world, relay, began, hit)
    return f"reset {sum(counts.values())} connections of {len(hit)} relays{said}; all came back"


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
    """Acknowledgements are dropped: the broker has a message, and the relay says that it failed."""
    await world.until_leader()
    began = time.monotonic()
    world.broker_proxy.hold_responses()
    try:
        done = await eventually(
            lambda: _failed(world, began) & _arrived(world, began),
            FEEL_SECONDS,
            "no message arrived whose dispatch failed",
        )
        dropped = world.broker_proxy.responses.held
        world.broker_proxy.reset()
    finally:
        world.broker_proxy.pass_through()
    return f"dropped {dropped} bytes of answers; {len(done)} messages failed for the relay and had arrived"


def _failed(world: World, since: float) -> set[str]:
    return {line["event_id"] for line in world.events.since(since, "Failed")}


def _arrived(world: World, since: float) -> set[str]:
    return {event_id for line in world.arrivals.since(since) for event_id in line["ids"]}


async def reset_broker(world: World) -> str:
    """Every connection to the broker is reset while answers are on their way."""
    await world.until_leader()
    proxy, accepted = world.broker_proxy, world.broker_proxy.accepted
    proxy.hold_responses()
    try:
        await proxy.wait_for(lambda proxy: proxy.responses.held > 0, within=FEEL_SECONDS)
        dropped, count = proxy.responses.held, proxy.reset()
    finally:
        proxy.pass_through()
        world.back = time.monotonic()
    with promised():
        await proxy.wait_for(accepts_more_than(accepted), within=FEEL_SECONDS)
    return f"reset {count} connections with {dropped} bytes of answers on their way; connected anew"


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
    """A connection to the broker that carries 2 kB a second, until it has carried a message, or one failed of it."""
    proxy = world.broker_proxy
    forwarded = proxy.requests.forwarded
    proxy.throttle(2_000)
    try:
        await proxy.wait_for(lambda proxy: proxy.requests.held > 0, within=FEEL_SECONDS)
        held = proxy.requests.held
        await proxy.wait_for(
            lambda proxy: proxy.requests.forwarded - forwarded > NARROW_BYTES, within=FEEL_SECONDS
        )
        (felt, *_) = await world.events.until(
            time.monotonic(), "Published", "Failed", "BreakerOpened", within=FEEL_SECONDS
        )
    finally:
        proxy.pass_through()
    return f"{held} bytes waited, {felt['name']} behind them"


async def _drop_answers(proxy: FaultProxy) -> int:
    proxy.hold_responses()
    try:
        await proxy.wait_for(lambda proxy: proxy.responses.held > 0, within=FEEL_SECONDS)
        dropped = proxy.responses.held
        proxy.reset()
    finally:
        proxy.pass_through()
    return dropped


DATABASE_FAULTS = (cut_database, lose_database_answers, lose_commit_answers, reset_database)
BROKER_FAULTS = (cut_broker, lose_broker_answers, reset_broker, refuse_broker, slow_broker, narrow_broker)
FAULTS = (*DATABASE_FAULTS, *BROKER_FAULTS)

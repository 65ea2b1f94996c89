"""What holds messages up put right: a key's head released, pending messages put off or brought forward."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_core import State
from outbox_core.dead_letters import Action
from outbox_core.errors import ConfigError
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Event, Released
from outbox_core.relay import Relay
from tests.integration.yard import BECAUSE, OTHER, TABLE, Yard
from tests.kit.gates import ignore
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


async def test_release_replays_a_dead_head(yard: Yard) -> None:
    head, second = await yard.add("dead", 2, key="k")
    await yard.add("pending", key="k")
    released = await yard.letters.release("k", **BECAUSE)
    assert released is not None
    assert (released.event_id, released.state, released.attempts, released.replays) == (
        head,
        State.PENDING,
        0,
        1,
    )
    rows = await yard.rows()
    assert rows[head]["available_at"] <= datetime.now(UTC)
    assert rows[second]["dead_at"] is not None
    assert (await yard.letters.release("k", **BECAUSE)) is not None
    assert (await yard.rows())[second]["dead_at"] is None
    actions = [(record.action, record.changed) for record in await yard.letters.history()]
    assert actions == [(Action.RELEASE, 1), (Action.RELEASE, 1)]


async def test_release_brings_a_waiting_head_forward_and_changes_nothing_else(yard: Yard) -> None:
    (head,) = await yard.add("pending", key="k")
    await yard.connection.execute(
        "UPDATE shop.orders_outbox SET available_at = now() + interval '9 hours', attempts = 7, last_error = 'X.Y z'"
    )
    released = await yard.letters.release("k", **BECAUSE)
    assert released is not None
    assert (released.event_id, released.attempts, released.replays, released.last_error) == (
        head, 7, 0, "X.Y z",
    )  # fmt: skip
    assert released.available_at <= datetime.now(UTC)


async def test_release_leaves_a_head_in_flight_and_other_keys_alone(yard: Yard) -> None:
    await yard.add("in_flight", key="k")
    await yard.add("dead", key="other")
    await yard.add("dead", key="k", tenant=OTHER)
    before = await yard.rows()
    assert await yard.letters.release("k", **BECAUSE) is None
    assert await yard.letters.release("nobody's", **BECAUSE) is None
    assert await yard.rows() == before
    assert [record.changed for record in await yard.letters.history()] == [0, 0]


async def test_a_released_key_goes_on_in_a_relay_that_blocks(yard: Yard) -> None:
    await yard.add("dead", key="k")
    behind = await yard.add("pending", 3, key="k")
    await yard.add("pending", key="free")

    async def published(count: int) -> bool:
        return (await yard.states()).get("published") == count

    async with Relay(yard.relays, table=TABLE, dispatcher=ignore, on_dead="block", **QUICK_POSTGRES):
        await until(lambda: published(1))
        rows = await yard.rows()
        assert all(rows[each]["published_at"] is None for each in behind)
        await yard.letters.release("k", **BECAUSE)
        await until(lambda: published(5))


@pytest.mark.parametrize("way", ["release", "postpone"])
async def test_a_waiting_head_that_is_brought_forward_goes_at_once(yard: Yard, way: str) -> None:
    """The relay holds its key for hours, and polls once in a while only."""
    (head,) = await yard.add("pending", key="k")
    behind = await yard.add("pending", 2, key="k")
    await yard.connection.execute(
        "UPDATE shop.orders_outbox SET available_at = now() + interval '9 hours' WHERE event_id = $1", head
    )
    delivered: list[UUID] = []
    turned_away: list[str] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append(message.meta.event_id)

    def heard(event: Event) -> None:
        if isinstance(event, Released):
            turned_away.append(event.reason)

    settings: dict[str, Any] = QUICK_POSTGRES | {"poll_interval": 30.0}
    async with Relay(yard.relays, table=TABLE, dispatcher=dispatch, observers=[heard], **settings):
        await until(lambda: bool(turned_away))
        assert delivered == []
        if way == "release":
            await yard.letters.release("k", **BECAUSE)
        else:
            await yard.letters.postpone([head], delay=timedelta(), **BECAUSE)
        await until(lambda: delivered == [head, *behind], timeout=8)


async def test_a_waiting_head_that_is_gone_holds_nobody(yard: Yard) -> None:
    (head,) = await yard.add("pending", key="k")
    behind = await yard.add("pending", 2, key="k")
    await yard.letters.postpone([head], delay=timedelta(hours=9), **BECAUSE)
    delivered: list[UUID] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append(message.meta.event_id)

    turned_away: list[str] = []

    def heard(event: Event) -> None:
        if isinstance(event, Released):
            turned_away.append(event.reason)

    async with Relay(yard.relays, table=TABLE, dispatcher=dispatch, observers=[heard], **QUICK_POSTGRES):
        await until(lambda: bool(turned_away))
        await yard.connection.execute("DELETE FROM shop.orders_outbox WHERE event_id = $1", head)
        await until(lambda: delivered == behind, timeout=8)


async def test_postponing(yard: Yard) -> None:
    pending = await yard.add("pending", 2)
    others = [*await yard.add("dead"), *await yard.add("in_flight"), *await yard.add("published")]
    before = await yard.rows()
    until_then = datetime.now(UTC) + timedelta(days=2)
    record = await yard.letters.postpone([*pending, *others], until=until_then, **BECAUSE)
    assert (record.action, record.planned, record.changed, record.skipped) == (Action.POSTPONE, 5, 2, 3)
    rows = await yard.rows()
    for event_id in pending:
        assert rows[event_id]["available_at"] == until_then
        changed = {name for name in rows[event_id].keys() if rows[event_id][name] != before[event_id][name]}  # noqa: SIM118
        assert changed == {"available_at"}
    for event_id in others:
        assert rows[event_id] == before[event_id]
    await yard.letters.postpone(pending, delay=timedelta(hours=1), **BECAUSE)
    moment = (await yard.rows())[pending[0]]["available_at"] - datetime.now(UTC)
    assert timedelta(minutes=59) < moment <= timedelta(hours=1)
    await yard.letters.postpone(pending, delay=timedelta(), **BECAUSE)
    assert (await yard.rows())[pending[0]]["available_at"] <= datetime.now(UTC)


async def test_what_postpone_refuses(yard: Yard) -> None:
    some = [uuid4()]
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    refused: list[dict[str, Any]] = [
        {},
        {"until": datetime.now(UTC), "delay": timedelta(1)},
        {"until": naive},
    ]
    for bad in refused:
        with pytest.raises(ConfigError):
            await yard.letters.postpone(some, **BECAUSE, **bad)
    with pytest.raises(ConfigError, match="event_ids"):
        await yard.letters.postpone([], delay=timedelta(1), **BECAUSE)

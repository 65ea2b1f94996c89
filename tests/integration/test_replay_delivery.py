"""Replayed messages in a running relay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from outbox_core.errors import PermanentError
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from tests.integration.yard import ALL, BECAUSE, TABLE, Yard, replays
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


async def test_it_is_delivered_once_more_and_says_so(yard: Yard) -> None:
    await yard.add("dead", 3)
    await yard.add("published", 2)
    delivered: list[tuple[UUID, int, int]] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append((message.meta.event_id, message.meta.replays, message.meta.attempts))

    async with Relay(yard.relays, table=TABLE, dispatcher=dispatch, **QUICK_POSTGRES | {"poll_interval": 30}):
        await yard.letters.replay(await yard.letters.plan(ALL), **BECAUSE)
        # Long before the next poll: a replay wakes the relay.
        await until(lambda: len(delivered) == 3, timeout=10)
    assert {(replay, attempt) for _, replay, attempt in delivered} == {(1, 1)}
    assert await yard.states() == {"published": 5}


async def test_a_replayed_message_does_not_hold_its_key(yard: Yard) -> None:
    (head,) = await yard.add("dead", key="k")
    (behind,) = await yard.add("pending", key="k")
    plan = await yard.letters.plan(ALL)
    await yard.letters.replay(plan, rate=0.001, **BECAUSE)
    await yard.letters.postpone([head], delay=timedelta(hours=1), **BECAUSE)
    delivered: list[UUID] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append(message.meta.event_id)

    async with Relay(yard.relays, table=TABLE, dispatcher=dispatch, on_dead="block", **QUICK_POSTGRES):
        await until(lambda: delivered == [behind])


@pytest.mark.parametrize("max_attempts", [1, 100])
async def test_another_max_attempts_neither_revives_nor_hides_dead_messages(
    yard: Yard, max_attempts: int
) -> None:
    dead = await yard.add("dead", 3)
    (fresh,) = await yard.add("pending")
    before = await yard.rows()
    delivered: list[UUID] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append(message.meta.event_id)

    settings: dict[str, Any] = QUICK_POSTGRES | {"max_attempts": max_attempts}
    async with Relay(yard.relays, table=TABLE, dispatcher=dispatch, **settings):
        await until(lambda: fresh in delivered)
    assert delivered == [fresh]
    rows = await yard.rows()
    assert all(rows[each] == before[each] for each in dead)
    assert await yard.letters.count() == 3
    await yard.letters.replay(await yard.letters.plan(ALL), **BECAUSE)
    async with Relay(yard.relays, table=TABLE, dispatcher=dispatch, **settings):
        await until(lambda: set(delivered) == {fresh, *dead})


async def test_what_dies_again_can_be_replayed_again(yard: Yard) -> None:
    await yard.add("dead", 2)

    async def refuse(message: DispatchedMessage) -> None:
        raise PermanentError("no")

    async def all_dead() -> bool:
        return await yard.states() == {"dead": 2}

    for time in (1, 2):
        outcome = await yard.letters.replay(await yard.letters.plan(ALL), **BECAUSE)
        assert outcome.changed == 2
        assert await replays(yard) == {time: 2}
        async with Relay(yard.relays, table=TABLE, dispatcher=refuse, **QUICK_POSTGRES):
            await until(all_dead)
    assert [group.value for group in await yard.letters.group("code")] == ["PROVIDER.PERMANENT"]

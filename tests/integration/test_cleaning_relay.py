"""A relay cleans the tables that it delivers from, unless it is told not to."""

from __future__ import annotations

import pytest

from outbox_core.cleaner import CleanerSettings
from outbox_core.observer import Cleaned, Event
from outbox_core.relay import Relay
from tests.integration.yard import TABLE, Yard
from tests.kit.gates import ignore
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


async def test_a_relay_cleans_its_tables(yard: Yard) -> None:
    await yard.add("published", 3)
    await yard.add("published", age=1)
    heard: list[Event] = []
    settings = CleanerSettings(retention=60, interval=0.05)
    relay = Relay(
        yard.relays,
        table=TABLE,
        dispatcher=ignore,
        cleaner=settings,
        observers=[heard.append],
        **QUICK_POSTGRES,
    )
    async with relay:
        await until(lambda: any(isinstance(event, Cleaned) for event in heard))
        await yard.add("published", 2)
        await until(lambda: len([event for event in heard if isinstance(event, Cleaned)]) == 2)
    assert await yard.states() == {"published": 1}


@pytest.mark.parametrize("cleaner", [None, CleanerSettings(retention=60, enabled=False)])
async def test_a_relay_without_a_cleaner_keeps_everything(
    yard: Yard, cleaner: CleanerSettings | None
) -> None:
    old = await yard.add("published", age=30 * 86400)
    (fresh,) = await yard.add("pending")

    async def delivered() -> bool:
        return (await yard.rows())[fresh]["published_at"] is not None

    async with Relay(yard.relays, table=TABLE, dispatcher=ignore, cleaner=cleaner, **QUICK_POSTGRES):
        await until(delivered)
    assert set(await yard.rows()) == {*old, fresh}


async def test_a_relay_cleans_by_default(yard: Yard) -> None:
    await yard.add("published", age=8 * 86400)

    async def empty() -> bool:
        return not await yard.rows()

    async with Relay(yard.relays, table=TABLE, dispatcher=ignore, **QUICK_POSTGRES):
        await until(empty)

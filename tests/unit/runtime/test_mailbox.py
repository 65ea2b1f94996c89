"""Mailboxes: nothing that was put is lost or taken twice, and one wait is ended by one event."""

from __future__ import annotations

import asyncio

import pytest

from outbox_core.runtime.mailbox import AutoResetEvent, Mailbox

pytestmark = pytest.mark.asyncio


async def test_all_that_was_put_is_taken_at_once_in_order() -> None:
    mailbox = Mailbox[int]()
    for item in (3, 1, 2):
        mailbox.put(item)
    assert len(mailbox) == 3
    assert await mailbox.take() == [3, 1, 2]
    assert len(mailbox) == 0


async def test_take_waits_until_there_is_something() -> None:
    mailbox = Mailbox[str]()
    taking = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    mailbox.put("first")
    mailbox.put("second")
    assert await taking == ["first", "second"]


async def test_take_now_never_waits_and_leaves_nothing_for_the_next() -> None:
    mailbox = Mailbox[str]()
    assert mailbox.take_now() == []
    mailbox.put("only")
    assert mailbox.take_now() == ["only"]
    assert mailbox.take_now() == []


async def test_take_does_not_return_empty_after_another_emptied_the_mailbox() -> None:
    """The event is still set then, for items that are gone."""
    mailbox = Mailbox[str]()
    mailbox.put("gone")
    mailbox.take_now()
    taking = asyncio.create_task(mailbox.take())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not taking.done()
    mailbox.put("there")
    assert await taking == ["there"]


async def test_a_cancelled_take_takes_nothing() -> None:
    mailbox = Mailbox[str]()
    taking = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    mailbox.put("kept")
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert mailbox.take_now() == ["kept"]


async def test_what_is_put_while_a_batch_is_worked_on_waits_for_the_next_take() -> None:
    mailbox, seen = Mailbox[int](), list[list[int]]()
    mailbox.put(1)
    for _ in range(3):
        seen.append(await mailbox.take())
        mailbox.put(seen[-1][0] + 1)
    assert seen == [[1], [2], [3]]


async def test_an_event_ends_one_wait_and_no_second_one() -> None:
    event = AutoResetEvent()
    event.set()
    event.set()
    await asyncio.wait_for(event.wait(), 1.0)
    waiting = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    await asyncio.wait_for(waiting, 1.0)

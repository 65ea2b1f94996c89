"""A row that cannot be read is found while everything else goes on, and the others arrive meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox_core.errors import ContentUnreadable, StorageTimeout
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Dead, Failed
from outbox_core.relay import Relay
from tests.kit.memory import TABLE, UnreadableStore, put, rows
from tests.kit.observing import Heard
from tests.kit.settings import QUICK
from tests.kit.tuning import tune
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
TOPIC = "a.b.v1"


@pytest.mark.parametrize("error", [ContentUnreadable, StorageTimeout])
async def test_an_unreadable_row_first_in_a_claimed_key_keeps_no_other_waiting(
    error: type[ContentUnreadable | StorageTimeout],
) -> None:
    store, heard, got, tries = UnreadableStore(), Heard(), list[int](), 0
    store.error = error

    async def dispatch(message: DispatchedMessage) -> None:
        nonlocal tries
        if message.payload == b"0":
            tries += 1
            if tries == 1:
                raise RuntimeError("not yet")
        got.append(int(message.payload))

    settings = QUICK | {"backoff_base": 0.3, "backoff_cap": 0.3, "batch_size": 10}
    async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], **settings):
        await put(store, Message(TOPIC, 0, key="k"))
        await until(lambda: bool(heard.of(Failed)))
        await put(store, Message(TOPIC, 1, key="k"))  # found by nothing but a claim of its key, which is held
        culprit = rows(store)[1]
        store.culprit = culprit.id
        await until(lambda: tries == 2)
        await put(store, *(Message(TOPIC, number) for number in range(2, 10)))
        await until(lambda: len(got) == 9, 5.0)
        waited = culprit.last_error is not None
        await until(lambda: culprit.last_error is not None, 15.0)
    assert sorted(got) == [0, *range(2, 10)]
    if error is ContentUnreadable:
        assert str(culprit.last_error).startswith("STORAGE.UNREADABLE ")
        assert len(heard.of(Dead)) == 1
        assert culprit.attempts == 1
    else:
        assert not waited, "the others arrived only when it was found"
        assert not heard.of(Dead)
        assert all(event.charged for event in heard.of(Failed))


async def test_a_slow_row_is_found_although_another_key_is_claimed_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Follows that come to their end say nothing about a row that is in none of their keys."""
    tune(monkeypatch, max_rescan_seconds=0.3)
    store, got = UnreadableStore(), list[int]()
    store.error = StorageTimeout

    async def dispatch(message: DispatchedMessage) -> None:
        if message.meta.key is not None:
            raise RuntimeError("not yet")
        got.append(int(message.payload))

    await put(store, *(Message(TOPIC, number) for number in range(40)))
    for row in rows(store):
        row.available_at -= timedelta(hours=1)  # it is passed by claims that go on to what is new
    culprit = rows(store)[3]
    store.culprit = culprit.id
    await put(store, Message(TOPIC, 100, key="k"))
    settings = QUICK | {"max_attempts": 1_000_000}
    async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, **settings):
        await until(lambda: culprit.last_error is not None and len(got) == 39, 20.0)
    assert 3 not in got

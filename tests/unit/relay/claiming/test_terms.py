"""A term is a new one whenever it was gained anew, also with the same number."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import LeaderGained, LeaderLost
from outbox_core.relay import Relay
from outbox_core.store import BEGINNING, Claim, Leased
from outbox_core.stores.memory.election import MemoryElection
from outbox_core.table import TableName
from tests.kit.memory import TABLE, KeptStore, put, rows
from tests.kit.observing import Heard
from tests.kit.settings import QUICK
from tests.kit.tuning import tune
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
TOPIC = "a.b.v1"


class FailingOver(KeptStore):
    """Another server takes over, which has not heard of the last term."""

    unavailable = False
    read_on = False
    """Whether claims begin elsewhere than at the beginning."""

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        self.read_on = claim.since > BEGINNING
        return await super().claim(table, claim)

    def election(self, table: TableName) -> MemoryElection:
        election, leadership = super().election(table), self.database.leadership(table)
        campaign, heartbeat = election.campaign, election.heartbeat

        async def campaign_again() -> int | None:
            if self.unavailable:
                return None
            leadership.term = 0
            return await campaign()

        async def heartbeat_unless_away(term: int) -> bool:
            return not self.unavailable and await heartbeat(term)

        election.campaign = campaign_again  # type: ignore[method-assign]
        election.heartbeat = heartbeat_unless_away  # type: ignore[method-assign]
        return election


async def test_a_term_that_repeats_its_number_after_a_failover_reads_everything_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune(monkeypatch, rescan_seconds=600.0, max_rescan_seconds=600.0)  # no rescan finds it
    store, heard, got = FailingOver(), Heard(), list[int]()

    async def dispatch(message: DispatchedMessage) -> None:
        got.append(int(message.payload))

    settings = QUICK | {"takeover": 2.0, "database_timeout": 1.0}
    async with Relay(store.connect, table=TABLE, dispatcher=dispatch, observers=[heard], **settings):
        await put(store, Message(TOPIC, 1))
        await until(lambda: got == [1] and store.read_on)
        store.unavailable = True
        await until(lambda: bool(heard.of(LeaderLost)))
        await put(store, Message(TOPIC, 2))
        rows(store)[-1].available_at -= timedelta(hours=1)  # where the last term had read on from long ago
        store.unavailable = False
        await until(lambda: got == [1, 2], 5.0)
    assert [event.term for event in heard.of(LeaderGained)] == [1, 1]

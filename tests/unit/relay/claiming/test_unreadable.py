"""The claim that leases a suspected row without its content: at the old place, on terms as they are by then."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from outbox_core.errors import ContentUnreadable, StorageTimeout, StorageUnavailable
from outbox_core.identifiers import uuid7
from outbox_core.relay.claiming.unreadable import UnreadableRows
from outbox_core.store import Claim, KeyId, KeyRequest, Position, RowId
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.kit.deliveries import batch, claim, delivery, leased, shared
from tests.kit.memory import TABLE

SINCE: Position = (datetime(2026, 5, 1, tzinfo=UTC), 7)
UNTIL: Position = (datetime(2026, 5, 2, tzinfo=UTC), 9)
KEY: KeyId = (UUID(int=0), "k")


def claim_of(term: int = 3, limit: int = 1, without_content: bool = False) -> Claim:
    return claim(
        term=term,
        limit=limit,
        since=SINCE,
        until=UNTIL,
        without_content=without_content,
        find_predecessors=False,
    )


def test_it_is_a_claim_of_its_own_in_the_present_term_and_passes_over_what_is_held_now() -> None:
    """The failed one will be undone, by its token; and its term may be over."""
    unreadable, failed = UnreadableRows(TABLE, shared()), claim_of()
    unreadable.failed(failed, (), ContentUnreadable("no"))
    now = claim(term=4, limit=1, held_keys=[KEY], own_tokens=[uuid7()], blocked_topics=["t"])
    taken, keys = unreadable.taken(now)
    assert (taken.since, taken.until) == (SINCE, UNTIL)
    assert (taken.token, taken.term) == (now.token, 4)
    assert (taken.held_keys, taken.own_tokens, taken.blocked_topics) == (
        now.held_keys,
        now.own_tokens,
        now.blocked_topics,
    )
    assert taken.without_content
    assert taken.find_predecessors
    assert not keys
    assert not unreadable.suspected


def test_it_is_for_the_keys_of_the_failed_one() -> None:
    unreadable = UnreadableRows(TABLE, shared())
    unreadable.failed(claim_of(), [KeyRequest(KEY, 5, after=3)], ContentUnreadable("no"))
    assert unreadable.taken(claim_of(4))[1] == [KeyRequest(KEY, 5)], "from its first message on"


@pytest.mark.parametrize("failed", [claim_of(limit=2), claim_of(without_content=True)])
def test_a_claim_of_several_rows_or_of_none_of_their_content_blames_no_row(failed: Claim) -> None:
    unreadable = UnreadableRows(TABLE, shared())
    unreadable.failed(failed, (), ContentUnreadable("no"))
    assert not unreadable.suspected


def test_a_slow_row_is_suspected_when_it_was_not_answered_three_times() -> None:
    unreadable = UnreadableRows(TABLE, shared())
    for _ in range(2):
        unreadable.failed(claim_of(), (), StorageTimeout("slow"))
        assert not unreadable.suspected
    unreadable.failed(claim_of(), (), StorageTimeout("slow"))
    assert unreadable.suspected


class OneBad(MemoryStore):
    """A store in which the content of one row cannot be read."""

    def __init__(self, bad: RowId) -> None:
        super().__init__()
        self.bad = bad

    async def read_content(self, table: TableName, row_id: RowId) -> None:
        if row_id == self.bad:
            raise ContentUnreadable("cannot be read")
        await super().read_content(table, row_id)


@pytest.mark.asyncio
async def test_no_row_is_blamed_for_another_that_was_leased_with_it() -> None:
    """A claim of several keys may lease several rows without their content."""
    rows = [delivery(1, "a"), delivery(2, "b")]
    unreadable = UnreadableRows(TABLE, shared(OneBad(rows[0].id)))
    both = batch(claim(without_content=True), leased(rows))
    with pytest.raises(StorageUnavailable):
        await unreadable.examine(both)
    alone = batch(claim(without_content=True), leased(rows[:1]))
    (found,) = (await unreadable.examine(alone)).items()
    assert (found[0].id, type(found[1])) == (rows[0].id, ContentUnreadable)

"""A relay's own record of the steps it asks of the database and of what it hands to the broker, and its reader.

The database's trail knows under which lease a row was when it changed, and who changed it. Which lease the relay meant
is known here alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from outbox_core.store import Claim, Failure, KeyRequest, Lease, Leased, RowId
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.journal import Journal


class Account:
    """The record of one relay process. Each line is written before the step that it describes."""

    def __init__(self, journal: Journal, relay: str) -> None:
        self._journal = journal
        self._relay = relay
        self._numbers = itertools.count()

    def claims(self, token: UUID) -> None:
        self._journal.write("claim", relay=self._relay, token=str(token))

    def sends(self, events: Iterable[UUID]) -> int:
        """Messages that are handed to the dispatcher; a number, by which the outcome is known."""
        number, ids = next(self._numbers), [str(event_id) for event_id in events]
        self._journal.write("send", relay=self._relay, number=number, ids=ids)
        return number

    def acknowledged(self, number: int, failed: Iterable[UUID]) -> None:
        """All of them but those that failed."""
        self._journal.write(
            "ack", relay=self._relay, number=number, failed=[str(event_id) for event_id in failed]
        )

    def presents(self, write: str, leases: Mapping[UUID, Sequence[RowId]]) -> int:
        """Rows by their tokens, no rows where all of a token are meant; a number, by which the answer is known."""
        number = next(self._numbers)
        shown = {str(token): [str(row) for row in rows] for token, rows in leases.items()}
        self._journal.write("present", relay=self._relay, number=number, write=write, leases=shown)
        return number

    def hears(self, number: int, refused: Iterable[Lease]) -> None:
        """Of which leases nothing was done. A row may have been presented under two."""
        shown = [[str(row), str(token)] for row, token in refused]
        self._journal.write("answer", relay=self._relay, number=number, refused=shown)


class RecordingStore(PostgresStore):
    """The store as it is, and a record of every token it is given. A write without an answer stays without one."""

    def __init__(self, dsn: str, account: Account, **options: Any) -> None:
        super().__init__(dsn, **options)
        self._account = account

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        if claim.limit:
            self._account.claims(claim.token)
        return await super().claim(table, claim)

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        self._account.claims(claim.token)
        return await super().claim_keys(table, claim, keys)

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        number = self._account.presents("undo_claim", {claim.token: ()})
        count = await super().undo_claim(table, claim, keys)
        self._account.hears(number, ())
        return count

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        return await self._told("publish", leases, super().publish(table, leases, delete=delete))

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        leases = [(failure.id, failure.token) for failure in failures]
        return await self._told("fail", leases, super().fail(table, failures))

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        return await self._told("release", leases, super().release(table, leases, restamp=restamp))

    async def _told(self, write: str, leases: Sequence[Lease], work: Awaitable[set[Lease]]) -> set[Lease]:
        if not leases:
            return await work
        by_token: dict[UUID, list[RowId]] = {}
        for row, token in leases:
            by_token.setdefault(token, []).append(row)
        number = self._account.presents(write, by_token)
        lost = await work
        self._account.hears(number, lost)
        return lost


@dataclass(frozen=True, slots=True)
class Mark:
    """Who did something, and when. Times are of the monotonic clock."""

    relay: str
    at: float


@dataclass(frozen=True, slots=True)
class Presented:
    """A write of one row under one token, or of all rows of a token: then ``row`` is None."""

    relay: str
    write: str
    row: str | None
    token: str
    at: float
    accepted: bool | None = True
    """None where no answer came."""


@dataclass(frozen=True, slots=True)
class RelayRecord:
    """The records of all relays: claims by their tokens, how often each message was sent, when the broker
    acknowledged it, and when each relay last wrote."""

    claims: Mapping[str, Mark] = field(default_factory=dict[str, Mark])
    presented: Sequence[Presented] = ()
    sent: Mapping[str, int] = field(default_factory=dict[str, int])
    acknowledged: Mapping[str, Sequence[Mark]] = field(default_factory=dict[str, Sequence[Mark]])
    last_words: Mapping[str, float] = field(default_factory=dict[str, float])


def read(lines: Sequence[Mapping[str, Any]], others: Iterable[Mapping[str, Any]] = ()) -> RelayRecord:
    """Read the record, and other lines of relays, of which only the times count."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        by_kind.setdefault(line["kind"], []).append(line)
    sent = by_kind.get("send", [])
    refused = {
        (line["relay"], line["number"]): frozenset((row, token) for row, token in line["refused"])
        for line in by_kind.get("answer", ())
    }
    last_words: dict[str, float] = {}
    for line in (*lines, *others):
        if relay := line.get("relay"):
            last_words[relay] = max(line["at"], last_words.get(relay, line["at"]))
    return RelayRecord(
        claims={line["token"]: Mark(line["relay"], line["at"]) for line in by_kind.get("claim", ())},
        presented=[
            each
            for line in by_kind.get("present", ())
            for each in _presented(line, refused.get((line["relay"], line["number"])))
        ],
        sent=Counter(event_id for line in sent for event_id in line["ids"]),
        acknowledged=_acknowledged(sent, by_kind.get("ack", ())),
        last_words=last_words,
    )


def _acknowledged(
    sent: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]
) -> dict[str, list[Mark]]:
    windows = {(line["relay"], line["number"]): line["ids"] for line in sent}
    marks: dict[str, list[Mark]] = {}
    for line in answers:
        mark, failed = Mark(line["relay"], line["at"]), frozenset(line["failed"])
        for event_id in windows.get((line["relay"], line["number"]), ()):
            if event_id not in failed:
                marks.setdefault(event_id, []).append(mark)
    return marks


def _presented(line: Mapping[str, Any], refused: frozenset[tuple[str, str]] | None) -> Iterable[Presented]:
    for token, rows in line["leases"].items():
        for row in rows or (None,):
            accepted = None if refused is None else (row, token) not in refused
            yield Presented(line["relay"], line["write"], row, token, line["at"], accepted)

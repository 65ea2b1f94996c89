"""Claims in the order of keys: what each tells of rows that hide before those it took, and what goes back for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from outbox_core.identifiers import uuid7
from outbox_core.message import NIL_UUID
from outbox_core.store import LAST_SEQUENCE, Claim, KeyId, KeyRequest, KeySpan, Leased, LeasedRow, Predecessor
from tests.integration.relay.machine import KEYS, LOCK_TTL, TABLE, Table
from tests.integration.relay.model import Expected, Owner, heads, hidden_before
from tests.kit.deliveries import claim as terms_of_a_claim


class Order(Table):
    """A row is dispatched if its claim saw no committed row of its key with a lower sequence that is unresolved and in
    other hands. One committed later may come after it, and before everything that is claimed from then on."""

    @rule(
        data=st.data(),
        wanted=st.dictionaries(st.sampled_from(KEYS), st.integers(1, 4), min_size=1),
        dead_hold_keys=st.booleans(),
        lost=st.booleans(),
    )
    def follow(self, data: st.DataObject, wanted: dict[str, int], dead_hold_keys: bool, lost: bool) -> None:
        self.follow_keys(wanted, self.beside(data), dead_hold_keys=dead_hold_keys, lost=lost)

    def follow_keys(
        self,
        wanted: dict[str, int],
        beside: Sequence[Owner],
        *,
        dead_hold_keys: bool = False,
        lost: bool = False,
    ) -> Owner:
        claim = self.terms(self.term, 100, beside, dead_hold_keys=dead_hold_keys)
        followed = [KeyRequest((NIL_UUID, key), count) for key, count in wanted.items()]
        leased = self.run(self.store.claim_keys(TABLE, claim, followed))
        first = [head for key, count in wanted.items() for head in heads(self.rows.values(), key, count)]
        due = {head.sequence for head in first if head.claimable}
        assert {row.message.meta.sequence for row in leased.rows()} == due
        self.met["followed"] += bool(due)
        return self.admit(claim, leased, beside, followed, lost=lost)

    def beside(self, data: st.DataObject) -> list[Owner]:
        """Some of the owners, which are in the same process as one that claims now."""
        return data.draw(st.lists(st.sampled_from(self.owners), unique_by=id)) if self.owners else []

    def terms(self, term: int | None, limit: int, beside: Sequence[Owner], *, dead_hold_keys: bool) -> Claim:
        return terms_of_a_claim(
            token=uuid7(),
            term=term,
            limit=limit,
            lock_ttl=LOCK_TTL,
            own_tokens=[owner.claim.token for owner in beside],
            unordered_ids=[row.id for owner in beside for row in owner.apart],
            dead_hold_keys=dead_hold_keys,
        )

    def admit(
        self,
        claim: Claim,
        leased: Leased,
        beside: Sequence[Owner],
        followed: Sequence[KeyRequest],
        *,
        lost: bool,
    ) -> Owner:
        """Compare what the claim saw with the model, and set apart what stands behind that. Sometimes the answer is
        lost: then the owner knows its token and not its rows."""
        rows = leased.rows()
        taken = _by_key(rows)
        known = {sequence for sequences in taken.values() for sequence in sequences} | self.in_hand(beside)

        def hidden(key: str, sequence: int) -> Expected | None:
            return hidden_before(
                self.rows.values(), key, sequence, known, dead_hold_keys=claim.dead_hold_keys
            )

        apart: list[LeasedRow] = []
        if claim.term is None:
            assert leased.predecessors is None
        else:
            expected = {key: hidden(key, max(sequences)) for key, sequences in taken.items()}
            assert leased.predecessors is not None
            self.same(leased.predecessors, expected, beside)
            self.met["one committed late hid"] += sum(
                row is not None and row.late for row in expected.values()
            )
            apart = [
                row
                for row in rows
                if _stands_behind(row, leased.predecessors.get(row.key_id or (NIL_UUID, "")))
            ]
            for key, sequences in _by_key([row for row in rows if row not in apart]).items():
                assert all(hidden(key, sequence) is None for sequence in sequences), "dispatched out of order"
        owner = self.leased(claim, rows, apart, followed)
        if lost:
            owner.rows, owner.apart = [], []
        return owner

    def in_hand(self, beside: Sequence[Owner]) -> set[int]:
        """What a process holds in the order of its keys."""
        tokens = {owner.claim.token for owner in beside}
        apart = {row.message.meta.event_id for owner in beside for row in owner.apart}
        return {
            row.sequence
            for event_id, row in self.rows.items()
            if row.token in tokens and event_id not in apart
        }

    def same(
        self,
        found: Mapping[KeyId, Predecessor],
        expected: Mapping[str, Expected | None],
        beside: Sequence[Owner],
    ) -> None:
        apart = {row.message.meta.sequence for owner in beside for row in owner.apart}
        waits = {key[1]: (first.sequence, _kind(first.wait)) for key, first in found.items()}
        assert waits == {
            key: (row.sequence, "no time" if row.sequence in apart and row.unresolved else _kind_of(row))
            for key, row in expected.items()
            if row is not None
        }

    @rule(data=st.data(), keys=st.sets(st.sampled_from(KEYS), min_size=1), dead_hold_keys=st.booleans())
    def look(self, data: st.DataObject, keys: set[str], dead_hold_keys: bool) -> None:
        """Somebody looks who is first in some keys, as a relay does for those that wait."""
        beside = self.beside(data)
        claim = self.terms(self.term, 1, beside, dead_hold_keys=dead_hold_keys)
        spans = [KeySpan((NIL_UUID, key), 0, LAST_SEQUENCE) for key in sorted(keys)]
        found = self.run(self.store.predecessors(TABLE, spans, claim.view))
        known = self.in_hand(beside)
        rows = self.rows.values()
        expected = {
            key: hidden_before(rows, key, LAST_SEQUENCE, known, dead_hold_keys=dead_hold_keys) for key in keys
        }
        self.same(found, expected, beside)

    @precondition(lambda self: any(owner.apart for owner in self.owners))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """What was set apart goes back; until then it may hide before what is claimed."""
        owner = data.draw(st.sampled_from([owner for owner in self.owners if owner.apart]))
        back, owner.apart = owner.apart, []
        leases = [(row.id, row.token) for row in back]
        self.write(owner, back, self.store.release(TABLE, leases, restamp=False), Expected.unlock)


def _by_key(rows: Sequence[LeasedRow]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        meta = row.message.meta
        if meta.key is not None:
            found.setdefault(meta.key, []).append(meta.sequence)
    return found


def _stands_behind(row: LeasedRow, first: Predecessor | None) -> bool:
    return first is not None and row.message.meta.sequence >= first.sequence


def _kind(wait: float | None) -> str:
    return "for ever" if wait is None else "a while" if wait > 0 else "no time"


def _kind_of(row: Expected) -> str:
    """How long the model says that one waits for a row."""
    return "for ever" if row.state == "dead" else "no time" if row.claimable else "a while"

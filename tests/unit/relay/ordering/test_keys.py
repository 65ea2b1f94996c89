"""Order within a key: one message at a time, lowest sequence first, and no message overtakes a held one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_core.relay.ordering.keys import Keys
from outbox_core.store import KeyId, Predecessor
from tests.kit.deliveries import NIL, Delivery, batch, claim, delivery, key_order, leased


def row(sequence: int, key: str | None = "k") -> Delivery:
    return delivery(sequence, key)


def admit(
    keys: Keys,
    *rows: Delivery,
    hidden: Predecessor | None = None,
    requested: dict[KeyId, int] | None = None,
    now: float = 0.0,
    cut: bool = False,
) -> tuple[list[int], list[int]]:
    predecessors = {} if hidden is None else {(NIL, "k"): hidden}
    answer = batch(claim(), leased(rows, predecessors), keys=requested, full=cut)
    released = keys.admit(answer, rows, now)
    return _sequences(taken(keys)), _sequences(released)


def taken(keys: Keys) -> list[Delivery]:
    """The rows whose turn has come, as a pool takes them."""
    rows, keys.ready = keys.ready, []
    return rows


def _sequences(rows: Sequence[Delivery]) -> list[int]:
    return [row.message.meta.sequence for row in rows]


def test_one_of_a_key_goes_and_the_others_wait_for_it() -> None:
    keys, rows = key_order(), [row(1), row(2), row(3), row(4, "other"), row(5, None)]
    assert admit(keys, *rows) == ([5, 1, 4], [])
    for done, following in ((0, [rows[1]]), (1, [rows[2]]), (2, [])):
        keys.succeeded(rows[done])
        assert taken(keys) == following


def test_a_failure_holds_its_key_and_releases_the_rest() -> None:
    keys, rows = key_order(), [row(1), row(2), row(3)]
    admit(keys, *rows)
    assert keys.failed(rows[0], wake=10.0) == rows[1:]
    assert keys.held() == [(NIL, "k")]
    assert keys.next_wake() == inf
    keys.resolved(rows, 1.0)
    assert keys.next_wake() == 10.0
    assert keys.due(9.9, 100) == {}
    assert keys.due(10.0, 100) == {(NIL, "k"): 1}


def test_a_hidden_predecessor_sends_those_behind_it_back() -> None:
    keys = key_order()
    assert admit(keys, row(1), row(5), row(6), hidden=Predecessor(3, 7.0)) == ([1], [5, 6])
    assert keys.held() == [(NIL, "k")]


def test_rows_claimed_while_their_key_was_being_held_go_back() -> None:
    keys, first = key_order(), row(1)
    admit(keys, first)
    keys.failed(first, wake=10.0)
    assert admit(keys, row(2)) == ([], [2])


def test_a_key_claimed_to_its_end_is_free() -> None:
    keys, first = key_order(), row(1)
    admit(keys, first)
    keys.failed(first, wake=1.0)
    keys.resolved([first], 0.5)
    requested = keys.due(1.0, 100)
    assert admit(keys, requested=requested, now=1.0) == ([], [])
    assert keys.held() == []


def test_as_many_keys_are_due_at_a_time_as_are_asked_for() -> None:
    """Each was held twice for the same time: when it failed, and when that was on record."""
    keys = key_order()
    for number in range(4):
        head = row(number + 1, str(number))
        admit(keys, head)
        keys.failed(head, 10.0)
        keys.resolved([head], 0.0)
    assert len(keys.due(10.0, 4)) == 4


def test_a_row_with_the_sequence_of_the_one_that_hides_goes_back() -> None:
    """Nothing but the sequence itself makes it unique: a table may have been filled by hand."""
    assert admit(key_order(), row(1), row(2), row(3), hidden=Predecessor(2, 5.0)) == ([1], [2, 3])


def test_a_requested_key_of_which_nothing_came_waits_for_its_first_message() -> None:
    """It was claimed a moment too early, or an operator rescheduled its message."""
    keys, first = key_order(), row(1)
    admit(keys, first)
    keys.failed(first, 10.0)
    keys.resolved([first], 0.0)
    assert keys.due(10.0, 100) == {(NIL, "k"): 1}
    admit(keys, hidden=Predecessor(1, 3.0), requested={(NIL, "k"): 1}, now=10.0)
    assert (keys.held(), keys.next_wake()) == ([(NIL, "k")], 13.0)
    keys.due(13.0, 100)
    admit(keys, requested={(NIL, "k"): 1}, now=13.0)
    assert keys.held() == []


def test_a_key_is_claimed_on_when_its_claim_was_cut_short() -> None:
    keys, first = key_order(), row(1)
    admit(keys, first)
    keys.failed(first, wake=1.0)
    keys.resolved([first], 0.5)
    requested = keys.due(1.0, 100)
    assert admit(keys, requested=requested, now=2.0, cut=True) == ([], [])
    assert keys.held() == [(NIL, "k")]
    assert keys.due(2.0, 100) == requested


def test_of_a_key_that_succeeds_more_and_more_is_claimed() -> None:
    keys = key_order()
    asked: list[int] = []
    first = row(1)
    admit(keys, first)
    keys.failed(first, wake=0.0)
    keys.resolved([first], 0.0)
    sequence = 1
    for _ in range(4):
        requested = keys.due(1.0, 10_000)
        wanted = requested[NIL, "k"]
        asked.append(wanted)
        rows = [row(sequence + n) for n in range(wanted)]
        sequence += wanted
        admit(keys, *rows, requested=requested, now=1.0)
        for each in rows:
            keys.succeeded(each)
        keys.resolved(rows, 1.0)
    assert asked == [1, 8, 500, 500]


def held_until(wake: float, *, firm: bool = False) -> Keys:
    keys, head = key_order(), row(1)
    admit(keys, head)
    keys.failed(head, wake, firm=firm)
    keys.resolved([head], 0.0)
    return keys


def test_a_key_whose_first_message_is_due_sooner_than_it_was_is_claimed_sooner() -> None:
    keys = held_until(100.0)
    assert keys.waiting(0.0, 10) == [(NIL, "k")]
    keys.rechecked([(NIL, "k")], {(NIL, "k"): Predecessor(1, 99.9)}, 0.0)
    assert keys.next_wake() == 100.0
    keys.rechecked([(NIL, "k")], {(NIL, "k"): Predecessor(1, 5.0)}, 2.0)
    assert keys.next_wake() == 7.0
    keys.rechecked([(NIL, "k")], {(NIL, "k"): Predecessor(1, None)}, 2.0)
    assert keys.next_wake() == 7.0
    keys.rechecked([(NIL, "k")], {}, 3.0)
    assert keys.due(3.0, 10) == {(NIL, "k"): 1}


def test_a_key_that_a_dead_message_blocks_is_rechecked_and_not_claimed_again_and_again() -> None:
    keys = key_order()
    assert admit(keys, row(2), hidden=Predecessor(1, None)) == ([], [2])
    assert keys.next_wake() > 60.0
    assert keys.waiting(1.0, 10) == [(NIL, "k")]
    keys.rechecked([(NIL, "k")], {(NIL, "k"): Predecessor(1, None)}, 1.0)
    assert keys.due(60.0, 10) == {}
    keys.rechecked([(NIL, "k")], {}, 61.0)
    assert keys.due(61.0, 10) == {(NIL, "k"): 1}


def test_a_key_that_waits_for_its_destination_is_not_rechecked() -> None:
    keys = held_until(100.0, firm=True)
    assert keys.waiting(0.0, 10) == []
    keys.rechecked([(NIL, "k")], {}, 0.0)
    assert keys.next_wake() == 100.0


def test_waiting_keys_are_rechecked_in_turn() -> None:
    keys = key_order()
    for number in range(5):
        head = row(number + 1, str(number))
        admit(keys, head)
        keys.failed(head, 100.0)
        keys.resolved([head], 0.0)
    asked = [[key for _, key in keys.waiting(0.0, 2)] for _ in range(4)]
    assert asked == [["0", "1"], ["2", "3"], ["4"], ["0", "1"]]


@dataclass
class Kept:
    """A row as the database has it."""

    row: Delivery
    due: float
    leased_in: int | None = None
    done: bool = False


@dataclass
class Table:
    """The database and the dispatcher around `Keys`, as small as they can be."""

    random: Random
    keys: Keys = field(default_factory=Keys)
    rows: dict[int, Kept] = field(default_factory=dict)
    active: dict[KeyId, Delivery] = field(default_factory=dict)
    unrecorded: list[Delivery] = field(default_factory=list)
    now: float = 0.0
    claims: int = 0

    def write(self) -> None:
        sequence = len(self.rows) + 1
        delay = self.random.choice((0.0, 0.0, 0.0, 3.0))
        self.rows[sequence] = Kept(row(sequence, self.random.choice("abc")), self.now + delay)

    def claim(self) -> None:
        held = set(self.keys.held())
        due = [k for k in self.rows.values() if self._is_due(k) and k.row.key_id not in held]
        due.sort(key=lambda kept: (kept.due, kept.row.message.meta.sequence))
        self._take(due[: self.random.choice((1, 3, 50))], {})

    def claim_keys(self) -> None:
        requested = self.keys.due(self.now, 20)
        found: list[Kept] = []
        for key_id, wanted in requested.items():
            heads = [k for k in self.rows.values() if k.row.key_id == key_id and not k.done][:wanted]
            found.extend(kept for kept in heads if self._is_due(kept))
        few = found[: self.random.choice((1, 3, 50))]
        self._take(few, requested, cut=len(few) < len(found))

    def _is_due(self, kept: Kept) -> bool:
        return not kept.done and kept.leased_in is None and kept.due <= self.now

    def _take(self, found: list[Kept], requested: dict[KeyId, int], *, cut: bool = False) -> None:
        self.claims += 1
        for kept in found:
            kept.row = row(kept.row.message.meta.sequence, kept.row.message.meta.key)
            kept.leased_in = self.claims
        rows = [kept.row for kept in found]
        last = {each.key_id: each for each in sorted(rows, key=lambda each: each.message.meta.sequence)}
        hidden = {
            key_id: before
            for key_id, each in last.items()
            if key_id is not None and (before := self._before(key_id, each)) is not None
        }
        answer = batch(claim(), leased(rows, hidden), keys=requested, full=cut)
        for each in self.keys.admit(answer, rows, self.now):
            self._kept(each).leased_in = None
        for each in taken(self.keys):
            self._dispatch(each)

    def _before(self, key_id: KeyId, last: Delivery) -> Predecessor | None:
        for sequence, kept in self.rows.items():
            if (
                sequence < last.message.meta.sequence
                and kept.row.key_id == key_id
                and not kept.done
                and kept.leased_in is None
            ):
                return Predecessor(sequence, max(kept.due - self.now, 0.0))
        return None

    def _dispatch(self, each: Delivery) -> None:
        assert each.key_id is not None
        assert each.key_id not in self.active, "two rows of one key at once"
        sequence = each.message.meta.sequence
        overtaken = [
            s for s, k in self.rows.items() if s < sequence and k.row.key_id == each.key_id and not k.done
        ]
        assert not overtaken, f"{sequence} overtakes {overtaken}"
        self.active[each.key_id] = each

    def end(self, *, ok: bool) -> None:
        """The dispatch of some row ends."""
        if not self.active:
            return
        key_id = self.random.choice(list(self.active))
        each = self.active.pop(key_id)
        if ok:
            self._kept(each).done = True
            self.keys.succeeded(each)
            self.unrecorded.append(each)
            for following in taken(self.keys):
                self._dispatch(following)
            return
        delay = self.random.choice((0.0, 1.0))
        self.unrecorded += [each, *self.keys.failed(each, self.now + delay)]
        self._kept(each).due = self.now + delay

    def record(self) -> None:
        """What has ended is written down."""
        rows, self.unrecorded = self.unrecorded, []
        for each in rows:
            self._kept(each).leased_in = None
        self.keys.resolved(rows, self.now)

    def _kept(self, each: Delivery) -> Kept:
        return self.rows[each.message.meta.sequence]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_never_two_of_a_key_never_out_of_order_and_never_stuck(seed: int) -> None:
    random = Random(seed)
    table = Table(random)
    for _ in range(120):
        action = random.choice(
            ("write", "write", "claim", "claim keys", "ok", "ok", "fail", "record", "wait")
        )
        match action:
            case "write":
                table.write()
            case "claim":
                table.claim()
            case "claim keys":
                table.claim_keys()
            case "ok":
                table.end(ok=True)
            case "fail":
                table.end(ok=False)
            case "record":
                table.record()
            case _:
                table.now += random.choice((0.1, 1.0, 6.0))
    for _ in range(400):
        table.claim_keys()
        table.claim()
        while table.active:
            table.end(ok=True)
        table.record()
        table.now += 0.5
        if all(kept.done for kept in table.rows.values()):
            break
    assert all(kept.done for kept in table.rows.values())

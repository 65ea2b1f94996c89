"""Slots for dispatches: never more than there are, never all for one party, none lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.relay.dispatching.slots import Slots


class User:
    """Takes every slot it can get until it has as many as it wants."""

    def __init__(self, pool: Slots, party: object = None, *, wants: int = 1_000) -> None:
        self.pool = pool
        self.party = self if party is None else party
        self.slots = 0
        self.wants = wants

    def wake(self) -> None:
        while self.slots < self.wants and self.pool.take(self):
            pass

    def give(self, count: int = 1) -> None:
        for _ in range(count):
            self.pool.give(self)


@pytest.mark.parametrize("slots", [1, 2, 7, 64])
def test_slots_that_are_not_shared_go_to_the_first_user_that_asks(slots: int) -> None:
    user = User(Slots(slots, shared=False))
    user.wake()
    assert user.slots == slots


@pytest.mark.parametrize(
    ("slots", "alone", "second"), [(1, 1, 0), (2, 1, 1), (4, 3, 1), (16, 12, 3), (64, 48, 12)]
)
def test_one_party_leaves_slots_for_another(slots: int, alone: int, second: int) -> None:
    pool = Slots(slots, shared=True)
    first, other = User(pool), User(pool)
    first.wake()
    assert first.slots == alone
    other.wake()
    assert other.slots == second


def test_users_of_one_party_have_one_share() -> None:
    pool, party = Slots(64, shared=True), object()
    first, second = User(pool, party, wants=30), User(pool, party)
    first.wake()
    second.wake()
    assert (first.slots, second.slots) == (30, 18)


def test_slots_even_out_when_dispatches_end() -> None:
    pool = Slots(64, shared=True)
    users = [User(pool) for _ in range(3)]
    for user in users:
        user.wake()
    for _ in range(200):
        for user in users:
            if pool.wants_back(user):
                user.give()
    assert max(user.slots for user in users) - min(user.slots for user in users) <= 4
    assert sum(user.slots for user in users) <= 64


def test_two_of_one_party_come_to_have_as_many() -> None:
    pool, party = Slots(16, shared=True), object()
    first, second = User(pool, party), User(pool, party)
    first.wake()
    second.wake()
    assert second.slots == 0
    while pool.wants_back(first):
        first.give()
    assert abs(first.slots - second.slots) <= 1


def test_a_user_keeps_its_slots_while_no_other_waits() -> None:
    pool = Slots(4, shared=True)
    user = User(pool)
    user.wake()
    assert not pool.wants_back(user)


def test_with_fewer_slots_than_parties_they_take_turns() -> None:
    pool = Slots(1, shared=True)
    users = [User(pool, wants=1) for _ in range(3)]
    had: list[User] = []
    for user in users:
        user.wake()
    for _ in range(6):
        (owner,) = [user for user in users if user.slots]
        had.append(owner)
        assert pool.wants_back(owner)
        owner.give()
    assert had == users * 2


@given(
    st.integers(1, 20),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["take", "give", "yield"])), max_size=200),
)
def test_slots_are_neither_lost_nor_made(slots: int, shared: bool, steps: list[tuple[int, str]]) -> None:
    pool = Slots(slots, shared=shared)
    parties = [object(), object(), object()]
    users = [User(pool, parties[number % 3]) for number in range(6)]
    for number, step in steps:
        user = users[number]
        if step == "take":
            user.wake()
        elif user.slots and (step == "give" or pool.wants_back(user)):
            user.wants = user.slots - 1
            user.give()
            user.wants = 1_000
        assert 0 <= sum(one.slots for one in users) <= slots
        assert all(one.slots >= 0 for one in users)
    for user in users:
        user.wants = 0
    for user in users:
        user.give(user.slots)
    newcomer = User(pool)
    newcomer.wake()
    alone = User(Slots(slots, shared=shared))
    alone.wake()
    assert newcomer.slots == alone.slots

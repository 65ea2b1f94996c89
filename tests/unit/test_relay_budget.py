"""Places for dispatches: never more than there are, never all for one, none lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.relay.budget import Budget


class Holder:
    """Takes every place it can get until it is content."""

    def __init__(self, budget: Budget, party: object = None, *, wants: int = 1_000) -> None:
        self.budget = budget
        self.party = self if party is None else party
        self.places = 0
        self.wants = wants

    def place_free(self) -> None:
        while self.places < self.wants and self.budget.take(self):
            pass

    def give(self, count: int = 1) -> None:
        for _ in range(count):
            self.budget.give(self)


@pytest.mark.parametrize("places", [1, 2, 7, 64])
def test_one_that_is_not_shared_goes_to_whoever_asks(places: int) -> None:
    holder = Holder(Budget(places, shared=False))
    holder.place_free()
    assert holder.places == places


@pytest.mark.parametrize(
    ("places", "alone", "second"), [(1, 1, 0), (2, 1, 1), (4, 3, 1), (16, 12, 3), (64, 48, 12)]
)
def test_one_party_leaves_room_for_another(places: int, alone: int, second: int) -> None:
    budget = Budget(places, shared=True)
    first, other = Holder(budget), Holder(budget)
    first.place_free()
    assert first.places == alone
    other.place_free()
    assert other.places == second


def test_holders_of_one_party_have_one_share() -> None:
    budget, party = Budget(64, shared=True), object()
    first, second = Holder(budget, party, wants=30), Holder(budget, party)
    first.place_free()
    second.place_free()
    assert (first.places, second.places) == (30, 18)


def test_places_even_out_when_dispatches_end() -> None:
    budget = Budget(64, shared=True)
    holders = [Holder(budget) for _ in range(3)]
    for holder in holders:
        holder.place_free()
    for _ in range(200):
        for holder in holders:
            if budget.wants_back(holder):
                holder.give()
    assert max(holder.places for holder in holders) - min(holder.places for holder in holders) <= 4
    assert sum(holder.places for holder in holders) <= 64


def test_two_of_one_party_come_to_have_as_many() -> None:
    budget, party = Budget(16, shared=True), object()
    first, second = Holder(budget, party), Holder(budget, party)
    first.place_free()
    second.place_free()
    assert second.places == 0
    while budget.wants_back(first):
        first.give()
    assert abs(first.places - second.places) <= 1


def test_nobody_gives_back_while_nobody_else_waits() -> None:
    budget = Budget(4, shared=True)
    holder = Holder(budget)
    holder.place_free()
    assert not budget.wants_back(holder)


def test_with_fewer_places_than_parties_they_take_turns() -> None:
    budget = Budget(1, shared=True)
    holders = [Holder(budget, wants=1) for _ in range(3)]
    had: list[Holder] = []
    for holder in holders:
        holder.place_free()
    for _ in range(6):
        (owner,) = [holder for holder in holders if holder.places]
        had.append(owner)
        assert budget.wants_back(owner)
        owner.give()
    assert had == holders * 2


@given(
    st.integers(1, 20),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["take", "give", "yield"])), max_size=200),
)
def test_places_are_neither_lost_nor_made(places: int, shared: bool, steps: list[tuple[int, str]]) -> None:
    budget = Budget(places, shared=shared)
    parties = [object(), object(), object()]
    holders = [Holder(budget, parties[number % 3]) for number in range(6)]
    for number, step in steps:
        holder = holders[number]
        if step == "take":
            holder.place_free()
        elif holder.places and (step == "give" or budget.wants_back(holder)):
            holder.wants = holder.places - 1
            holder.give()
            holder.wants = 1_000
        assert 0 <= sum(one.places for one in holders) <= places
        assert all(one.places >= 0 for one in holders)
    for holder in holders:
        holder.wants = 0
    for holder in holders:
        holder.give(holder.places)
    newcomer = Holder(budget)
    newcomer.place_free()
    alone = Holder(Budget(places, shared=shared))
    alone.place_free()
    assert newcomer.places == alone.places

"""A share of the seeds; ``python -m tests.simulation --seeds 2000`` runs as many as you like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.broker import FAULTS
from tests.simulation.faulty_store import KINDS
from tests.simulation.world import run

SEEDS = (*range(80), 193, 389, 1815, 1871, 1963)
"""A sample, and those that found something once."""
SOMETIMES = (
    *(f"broker: {fault}" for fault in (*FAULTS, "poison", "refused", "dropper", "killer")),
    *(f"store: {fault}" for fault in (*KINDS, "cut off")),
    "outage: refusing", "outage: silent", "kill", "freeze", "cut off", "stop", "cancel",
    "rolled back", "savepoint rolled back", "long transaction", "undo_claim", "probe", "claim_keys",
    "search above a watermark", "claim of keys above a watermark",
    "stale write refused", "stale write against another's lease refused",
    "LeaseLost", "LeaderGained", "LeaderLost", "BreakerOpened", "BreakerClosed", "Dead",
    "delivered again",
    "two open transactions of a key", "leased behind another", "committed behind a leased one",
    "committed behind a published one", "committed when a later one was leased",
    "committed when a later one was dispatched", "arrived before one committed late",
)  # fmt: skip
"""What a check of everything that can go wrong must have met: a fault that is never injected proves nothing."""


@pytest.mark.timeout(240)
def test_the_promises_hold_whatever_goes_wrong() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        record = run(seed)
        assert not record.violations, (
            f"seed {seed} (python -m tests.simulation --seed {seed} --trace): {record.violations[:5]}"
        )
        counts += record.counts
    assert [name for name in SOMETIMES if not counts[name]] == []
    assert counts["LeaderGained"] > 2 * len(SEEDS), "leadership hardly ever changed hands"


@pytest.mark.parametrize("seed", [1, 10, 40, 77])
def test_a_seed_always_gives_the_same_run(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert len(first.trace) > 100
    assert first.trace == second.trace


def test_seeds_differ() -> None:
    assert run(1).trace != run(2).trace

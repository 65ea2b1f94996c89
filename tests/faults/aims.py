"""How often faults are to be felt in one run, and how far it still is from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

EVERY_POINT = "points"
"""The aim of every named moment at which a relay can die: each so many times."""
PAIRS = "pairs"
"""The aim of two faults at once, one of the broker's side and one of another."""
_AT_A_POINT = "kill_relay_at_a_point"


def short_of(
    aims: Mapping[str, int], felt: Mapping[str, int], points: Sequence[str], visited: Mapping[str, int]
) -> dict[str, int]:
    """What is lacking of each aim that is not reached: a kind, or `EVERY_POINT`.

    ``felt`` says how often each kind was, and `PAIRS`; ``visited`` how often a relay died at each of the ``points``.
    """
    lacking = {aim: wanted - felt.get(aim, 0) for aim, wanted in aims.items() if aim != EVERY_POINT}
    if EVERY_POINT in aims:
        lacking[EVERY_POINT] = sum(max(0, aims[EVERY_POINT] - visited.get(point, 0)) for point in points)
    return {aim: count for aim, count in lacking.items() if count > 0}


def wanting(lacking: Mapping[str, int], available: Sequence[str]) -> dict[str, int]:
    """The kinds that bring a run nearer to its aims, in the order they are known in, with how often each is needed."""
    needed: Counter[str] = Counter()
    for aim, count in lacking.items():
        if aim == PAIRS:
            continue
        kind = _AT_A_POINT if aim == EVERY_POINT else aim
        needed[kind] = max(needed[kind], count)
    return {kind: needed[kind] for kind in available if needed[kind]}


def served(aims: Mapping[str, int], kinds: Sequence[str], known: Sequence[str]) -> dict[str, int]:
    """The aims that the kinds of a run can reach. ValueError for one that no kind at all serves."""
    if wrong := [aim for aim in aims if aim != PAIRS and not wanting({aim: 1}, known)]:
        raise ValueError(
            f"unknown aims: {', '.join(wrong)}; known are {', '.join((EVERY_POINT, PAIRS, *known))}"
        )
    return {aim: count for aim, count in aims.items() if aim == PAIRS or wanting({aim: 1}, kinds)}

"""Which runs there are in the short form, the long form and a soak."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.counts import EACH_RUN
from tests.faults.kinds import KINDS
from tests.faults.plan import BROKERS, Broker, OnPublished, Plan

SIDE_BY_SIDE_KINDS = (
    "kill_relay", "kill_relay_at_a_point", "freeze_relay", "kill_writer", "lose_commit_answers",
    "lose_database_answers", "lose_broker_answers", "kill_postgres", "kill_broker", "terminate_sessions",
)  # fmt: skip
"""What is broken while relays work side by side in the short form: whatever decides between two owners of a row."""
LONGER_SECONDS = 300.0
"""At least so long is each run of a long form that goes on after it has reached its counts."""
SOAK_SECONDS = 420.0
"""So long is the soak of a long form at least."""
SOAK_SHARE = 0.25
"""Of the hours of a long form; what would take days to show is not looked for in minutes."""
SOAK_RATE = 60.0
SOAK_RETENTION = 30.0
"""So short that a table reaches its size while it is watched. Dead letters go, too: one of them keeps a whole page of
each index that is in the order of time."""


@dataclass(frozen=True, slots=True)
class Task:
    """A run, the kinds to break it with, none in a soak, and how often a kind is to be felt at least."""

    plan: Plan
    kinds: Sequence[str]
    goals: Mapping[str, int] = field(default_factory=dict[str, int])


def tasks(arguments: argparse.Namespace, seed: int) -> Iterator[Task]:
    """The runs, one after another; endless in the long form, which is cut off where its time is over."""
    if arguments.soak is not None:
        yield _soak(arguments, seed, arguments.soak)
    elif arguments.long is not None:
        yield from _long(arguments, seed)
    else:
        yield from _short(arguments, seed)


def in_one_pass(arguments: argparse.Namespace) -> int:
    """How many runs the long form has before it may end."""
    return len(_brokers(arguments)) * len(_modes(arguments)) + 1


def _short(arguments: argparse.Namespace, seed: int) -> Iterator[Task]:
    chosen, seconds = _kinds(arguments), arguments.seconds or 0.0
    brokers = _brokers(arguments)
    first, second = brokers[seed % len(brokers)], brokers[(seed + 1) % len(brokers)]
    if True in _modes(arguments):
        yield Task(_plan(arguments, seed, first, seconds, ordered=True, turn=seed), chosen)
    few = chosen if arguments.mode else [kind for kind in chosen if kind in SIDE_BY_SIDE_KINDS]
    if few and False in _modes(arguments):
        yield Task(_plan(arguments, seed, second, seconds, ordered=False, turn=seed), few)


def _long(arguments: argparse.Namespace, seed: int) -> Iterator[Task]:
    """Every broker in both modes with what is to be reached, and a soak; then the same again, for ever.

    The first soak has its share of the hours. Later ones are short, so that the whole does not become much longer.
    """
    chosen, goals, seconds = _kinds(arguments), EACH_RUN, arguments.seconds or 0.0
    soaked = max(SOAK_SECONDS, arguments.long * 3600 * SOAK_SHARE)
    while True:
        for turn, broker in enumerate(_brokers(arguments), seed):
            for ordered in _modes(arguments):
                plan = _plan(arguments, seed, broker, seconds, ordered=ordered, turn=turn)
                yield Task(plan, chosen, goals)
        yield _soak(arguments, seed, soaked)
        seed, goals, seconds = seed + 1, {}, arguments.seconds or LONGER_SECONDS
        soaked = SOAK_SECONDS


def _kinds(arguments: argparse.Namespace) -> list[str]:
    return arguments.kinds.split(",") if arguments.kinds else list(KINDS)


def _brokers(arguments: argparse.Namespace) -> tuple[Broker, ...]:
    return (arguments.broker,) if arguments.broker else BROKERS


def _modes(arguments: argparse.Namespace) -> tuple[bool, ...]:
    return {"ordered": (True,), "side-by-side": (False,)}.get(arguments.mode, (True, False))


def _plan(
    arguments: argparse.Namespace, seed: int, broker: Broker, seconds: float, *, ordered: bool, turn: int
) -> Plan:
    """Of the two modes, by turns, one keeps what is published and the other deletes it."""
    by_turns: OnPublished = "mark" if ordered == (turn % 2 == 1) else "delete"
    return Plan(
        seed=seed,
        broker=broker,
        seconds=seconds,
        ordered=ordered,
        relays=2 if ordered else 3,
        on_published=arguments.on_published or by_turns,
    )


def _soak(arguments: argparse.Namespace, seed: int, seconds: float) -> Task:
    brokers = _brokers(arguments)
    plan = Plan(
        seed=seed,
        broker=brokers[seed % len(brokers)],
        seconds=seconds,
        ordered=True,
        rate=SOAK_RATE,
        retention=SOAK_RETENTION,
        dead_retention=SOAK_RETENTION,
        calm=True,
    )
    return Task(plan, ())

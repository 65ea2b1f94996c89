"""Whether messages were sent more than once for a reason: a bound that follows from what was broken, and when.

A message is sent at most once under each of its leases, and the lease under which it was sent for the last time is the
one that ends as published. Every sending before that needs a lease that ended otherwise, which a fault must have
brought about while the lease was held:

- a dispatch failed, and relays were kept from acknowledgements; one that was acknowledged and put off all the same was
  so because its relay stood still;
- a lease lapsed, and its relay stood still, died, or was kept from its database; and it was gone, or came too late with
  what it wrote of it.

What was given back had not been sent. So each fault allows for what relays had in hand while it lasted, as the trail
knows it, and for no more; what has no such reason is a machine's stall, or a relay that repeats itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.relay_record import RelayRecord
from tests.faults.trail import Asked, Step

STARTING = "starting"
"""Until the first message is published; then everybody has connected who has to."""
BROKERS = frozenset(
    {
        STARTING, "freeze_broker", "kill_broker", "restart_broker", "cut_broker", "lose_broker_answers",
        "reset_broker", "refuse_broker", "slow_broker", "narrow_broker",
    }
)  # fmt: skip
"""Kinds that keep acknowledgements from relays."""
STANDSTILLS = frozenset(
    {
        "freeze_relay", "block_event_loop", "stop_relay", "stop_relay_cut_off", "jump_database_clock",
        "lose_database_answers",
    }
)  # fmt: skip
"""Kinds that stop a relay, for a while or in order: dispatches are cut off, and outcomes recorded too late."""
DEATHS = frozenset({"kill_relay", "kill_relay_at_a_point"})
"""Kinds after which a relay records nothing more of what it had in hand."""
DATABASES = frozenset(
    {
        "restart_postgres", "kill_postgres", "freeze_postgres", "terminate_sessions", "read_only_postgres",
        "lock_table", "cut_database", "reset_database",
    }
)  # fmt: skip
"""Kinds that keep relays from recording what they were acknowledged."""
HARMLESS = frozenset(
    {"kill_writer", "lose_commit_answers", "long_transaction", "notify_storm", "jump_relay_clock"}
)
"""Kinds that are no reason to send anything again."""
NONE: frozenset[str] = frozenset()
STALL_MESSAGES = 4
"""What a machine that stalls without a fault may cost in a minute: in five of them what a relay has in hand at these
runs' load."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A fault, from when it began until what it had cost was known. Times are of the monotonic clock."""

    kind: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A lease that did not end as published, dead or given back, with the kinds that can have brought that about."""

    event_id: str
    began: float
    ended: float
    reasons: frozenset[str]

    def excused_by(self, broken: Iterable[Broken]) -> bool:
        return any(
            fault.kind in self.reasons and fault.began <= self.ended and self.began <= fault.ended
            for fault in broken
        )


@dataclass(frozen=True, slots=True)
class Repeats:
    """How many repetitions faults allow for, and the messages of those that none explains, each as often as it was."""

    excused: int = 0
    unexplained: Sequence[str] = field(default_factory=list[str])


def stalls(seconds: float, *, calm: bool = False) -> int:
    """How many repetitions without a fault are borne: so many for each minute that has begun; none in a ``calm`` run,
    where relays have their own, long times."""
    return 0 if calm else STALL_MESSAGES * (1 + int(seconds / 60))


def repeats(
    trail: Iterable[Step], told: RelayRecord, stored: Mapping[str, int], broken: Sequence[Broken]
) -> Repeats:
    """Of what relays sent and what the broker has, whichever is more: JetStream drops what it has already."""
    excused = Counter(lease.event_id for lease in unfinished(trail, told) if lease.excused_by(broken))
    unexplained: list[str] = []
    for event_id in {**told.sent, **stored}:
        times = max(stored.get(event_id, 0), told.sent.get(event_id, 0))
        unexplained += [event_id] * max(0, times - 1 - excused[event_id])
    return Repeats(excused.total(), unexplained)


def unfinished(trail: Iterable[Step], told: RelayRecord) -> Iterator[Unfinished]:
    """Every lease under which a message may have been sent and that was followed by another."""
    asked = Asked(told.presented)
    for step in trail:
        claim = told.claims.get(step.old_token or "")
        if step.was != "leased" or claim is None:
            continue
        if step.became == "leased" and (after := told.claims.get(step.new_token or "")):
            gone = told.last_words.get(claim.relay, 0.0) <= after.at
            spoke = bool(asked.of(claim.relay, step.row, step.old_token))
            reasons = STANDSTILLS | DEATHS | DATABASES if gone or spoke else NONE
            yield Unfinished(step.event_id, claim.at, after.at, reasons)
        elif step.became == "pending" and (made := asked.that_made(step)) and made.write == "fail":
            acknowledged = any(
                mark.relay == claim.relay and claim.at <= mark.at <= made.at
                for mark in told.acknowledged.get(step.event_id, ())
            )
            reasons = STANDSTILLS if acknowledged else STANDSTILLS | BROKERS
            yield Unfinished(step.event_id, claim.at, made.at, reasons)

"""Key watermarks: from where on a key has to be checked for messages that come before others.

A claim checks itself, from a key's first message on, which is cheapest. But what was delivered stays in the key's index
while another session of the database holds an old snapshot, and a check then comes past all of it. So now and then
claims leave the check to a step of its own, which is timed. If that was expensive they go on like that for a while, and
the relay remembers how far each key has been checked: its *watermark*, the sequence up to which none of its messages is
unresolved but those in flight.

Nor may one appear below it any more. A session that can still commit a lower sequence holds a lock on the table, which
every writer takes before it draws one and keeps until its end. So a watermark is no higher than what had been drawn at
the last tick, nor than what had been drawn before any of those began that were writing then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from outbox_core.runtime import clock
from outbox_core.store import LAST_SEQUENCE, KeyRequest, KeySpan, Marker

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.store import KeyId, Predecessor, Tick

_TRIAL_SECONDS: Final = 1.0
_EXPENSIVE_SECONDS: Final = 60.0
"""For how long claims leave the check to a step of its own before its cost is measured again."""
_LEAST_EXPENSIVE: Final = 0.002
_TRIALS: Final = 2
"""Trials in a row that must have been expensive: one may have been held up by something else."""
_MOST_KEYS: Final = 50_000
FROM_FIRST_SECONDS: Final = 15.0
"""How often a requested key is checked from its first message on although it has a watermark."""


class KeyWatermarks:
    """The watermarks of a table's keys. A key without one is checked from its first message on: always right."""

    def __init__(self) -> None:
        self._watermarks: dict[KeyId, int] = {}
        self._next_from_first: dict[KeyId, float] = {}
        self._lowered: set[KeyId] = set()
        """Keys of which a message went back since the claim under way was sent."""
        self._drawn = 0
        """A sequence that has been drawn: the highest that was claimed."""
        self._drawn_before = 0
        """The same at the last tick."""
        self._writers: dict[Marker, int] = {}
        """Those that were writing at the last tick, with what had been drawn before they were first seen."""
        self._ceiling = 0
        self._expensive_until = 0.0
        self._next_trial = 0.0
        self._expensive_trials = 0

    @property
    def find_separately(self) -> bool:
        """True when the next claim leaves the check to a step of its own."""
        return self.in_use or clock.now() >= self._next_trial

    @property
    def in_use(self) -> bool:
        """True when checks are expensive, and watermarks are kept."""
        return clock.now() < self._expensive_until

    def of(self, keys: Collection[KeyId]) -> dict[KeyId, int]:
        """Those of the keys that have one."""
        watermarks = self._watermarks
        if not watermarks or not self.in_use:
            return {}
        return {key_id: watermarks[key_id] for key_id in keys if key_id in watermarks}

    def for_requests(self, keys: Collection[KeyId]) -> dict[KeyId, int]:
        """The same for checks that must find replayed ones, too, which may lie below: now and then each key is checked
        from its first message on."""
        now = clock.now()
        watermarks = self.of(keys)
        for key_id in [key_id for key_id in watermarks if now >= self._next_from_first.get(key_id, 0.0)]:
            del watermarks[key_id]
            self._next_from_first[key_id] = now + FROM_FIRST_SECONDS
        if len(self._next_from_first) > _MOST_KEYS:
            self._next_from_first.clear()
        return watermarks

    def spans(self, last: Mapping[KeyId, int]) -> list[KeySpan]:
        """Where something may come before the sequences that these keys have come to."""
        watermarks = self.of(last)
        return [KeySpan(key_id, watermarks.get(key_id, 0), before) for key_id, before in last.items()]

    def spans_of_all(self, keys: Collection[KeyId]) -> list[KeySpan]:
        """Where these keys may have a message at all, replayed ones included."""
        watermarks = self.for_requests(keys)
        return [KeySpan(key_id, watermarks.get(key_id, 0), LAST_SEQUENCE) for key_id in keys]

    def requests(self, keys: Mapping[KeyId, int]) -> list[KeyRequest]:
        """Ask for the given number of rows of each key."""
        watermarks = self.for_requests(keys)
        return [KeyRequest(key_id, rows, watermarks.get(key_id, 0)) for key_id, rows in keys.items()]

    def sent(self) -> None:
        """A claim is sent."""
        self._lowered.clear()

    def ticked(self, tick: Tick) -> None:
        """Take a tick of the database in, after which nothing was claimed yet."""
        drawn = self._drawn_before
        self._writers = {writer: self._writers.get(writer, drawn) for writer in tick.writers}
        self._drawn_before = self._drawn
        self._ceiling = min(self._drawn, *self._writers.values()) if self._writers else self._drawn

    def drawn(self, sequence: int) -> None:
        """A sequence has been drawn, for it was claimed."""
        self._drawn = max(self._drawn, sequence)

    def timed(self, claim_seconds: float, check_seconds: float) -> None:
        """A claim and the check for what comes before its rows, each in a step of its own, took this long."""
        if self.in_use:
            return
        now = clock.now()
        if check_seconds < max(claim_seconds, _LEAST_EXPENSIVE):
            self._next_trial, self._expensive_trials = now + _TRIAL_SECONDS, 0
            self._watermarks.clear()
            self._next_from_first.clear()
            return
        self._expensive_trials += 1
        if self._expensive_trials >= _TRIALS or self._watermarks:
            self._expensive_until, self._expensive_trials = now + _EXPENSIVE_SECONDS, 0

    def verified(self, last: Mapping[KeyId, int], predecessors: Mapping[KeyId, Predecessor]) -> None:
        """Rows of these keys were claimed, up to these sequences, and this comes before them that is not in flight."""
        for key_id, sequence in last.items():
            if key_id not in predecessors and key_id not in self._lowered:
                self._raise(key_id, min(sequence, self._ceiling))

    def lower(self, rows: Iterable[Delivery]) -> None:
        """These rows go back: they will be unresolved, and not in flight."""
        for row in rows:
            if row.key_id is not None:
                self._lowered.add(row.key_id)
                below = row.message.meta.sequence - 1
                if self._watermarks.get(row.key_id, 0) > below:
                    self._watermarks[row.key_id] = below

    def forget(self) -> None:
        """Another relay may have led meanwhile, or another server taken over, which has not drawn as much."""
        self._watermarks.clear()
        self._writers.clear()
        self._drawn = self._drawn_before = self._ceiling = 0

    def _raise(self, key_id: KeyId, sequence: int) -> None:
        known = self._watermarks.pop(
            key_id, 0
        )  # it goes to the end: who has not been seen for longest is first
        self._watermarks[key_id] = max(known, sequence)
        if len(self._watermarks) > _MOST_KEYS:
            del self._watermarks[next(iter(self._watermarks))]


def last_of_keys(rows: Iterable[Delivery]) -> dict[KeyId, int]:
    """The highest sequence of each key among them."""
    last: dict[KeyId, int] = {}
    for row in rows:
        if row.key_id is not None:
            last[row.key_id] = max(last.get(row.key_id, 0), row.message.meta.sequence)
    return last

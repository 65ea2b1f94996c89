"""From where on a key has to be looked at for messages that come before others.

A claim looks itself, from a key's first message on, which is cheapest. But what was delivered stays in the key's index
while somebody in the database holds an old snapshot, and a look then comes past all of it. So now and then claims leave
the look to a statement of its own, which is timed. If that was dear they go on like that for a while, and the relay
remembers how far each key has been looked at: its *floor*, the sequence up to which none of its messages is unresolved
but those in hand.

Nor may one appear below it any more. Whoever can still commit a lower sequence holds a lock on the table, which every
writer takes before it draws one and keeps until its end. So a floor is no higher than what had been drawn at the last
look at the database, nor than what had been drawn before any of those began that were writing then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from outbox_core.relay import clock
from outbox_core.relay.wakeups import MAX_SWEEP_SECONDS
from outbox_core.store import LAST_SEQUENCE, KeyRequest, KeySpan

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.store import KeyId, Marker, Predecessor, Tick

_TRIAL_SECONDS: Final = 1.0
_DEAR_SECONDS: Final = 60.0
"""For how long claims leave the look to others before it is seen again what it would cost."""
_LEAST_DEAR: Final = 0.002
_TRIALS: Final = 2
"""So many in a row must have been dear: one may have been held up by something else."""
_MOST_KEYS: Final = 50_000


class Floors:
    """Of the keys of one table. A key without one is looked at from its first message on, which is always right."""

    def __init__(self) -> None:
        self._floors: dict[KeyId, int] = {}
        self._next_from_first: dict[KeyId, float] = {}
        self._lowered: set[KeyId] = set()
        """Keys of which a message went back since the claim under way was sent."""
        self._drawn = 0
        """A sequence that has been drawn: the highest that was claimed."""
        self._drawn_before = 0
        """The same at the last look at the database."""
        self._writers: dict[Marker, int] = {}
        """Who was writing at the last look, with what had been drawn before they were first seen."""
        self._ceiling = 0
        self._dear_until = 0.0
        self._next_trial = 0.0
        self._dear_trials = 0

    @property
    def looks_apart(self) -> bool:
        """Whether the next claim is to leave the look to a statement of its own."""
        return self.in_use or clock.now() >= self._next_trial

    @property
    def in_use(self) -> bool:
        """Whether looks are dear, and floors are kept."""
        return clock.now() < self._dear_until

    def of(self, keys: Collection[KeyId]) -> dict[KeyId, int]:
        """Those of the keys that have one."""
        floors = self._floors
        if not floors or not self.in_use:
            return {}
        return {key_id: floors[key_id] for key_id in keys if key_id in floors}

    def for_following(self, keys: Collection[KeyId]) -> dict[KeyId, int]:
        """The same for those that look for replayed ones, too, which may lie below: now and then each key is looked at
        from its first message on."""
        now = clock.now()
        floors = self.of(keys)
        for key_id in [key_id for key_id in floors if now >= self._next_from_first.get(key_id, 0.0)]:
            del floors[key_id]
            self._next_from_first[key_id] = now + MAX_SWEEP_SECONDS
        if len(self._next_from_first) > _MOST_KEYS:
            self._next_from_first.clear()
        return floors

    def spans(self, last: Mapping[KeyId, int]) -> list[KeySpan]:
        """Where something may come before the sequences that these keys have come to."""
        floors = self.of(last)
        return [KeySpan(key_id, floors.get(key_id, 0), before) for key_id, before in last.items()]

    def spans_of_all(self, keys: Collection[KeyId]) -> list[KeySpan]:
        """Where these keys may have a message at all, replayed ones included."""
        floors = self.for_following(keys)
        return [KeySpan(key_id, floors.get(key_id, 0), LAST_SEQUENCE) for key_id in keys]

    def requests(self, keys: Mapping[KeyId, int]) -> list[KeyRequest]:
        """Ask for so many rows of each key."""
        floors = self.for_following(keys)
        return [KeyRequest(key_id, rows, floors.get(key_id, 0)) for key_id, rows in keys.items()]

    def sent(self) -> None:
        """A claim is sent."""
        self._lowered.clear()

    def looked(self, tick: Tick) -> None:
        """Take in a look at the database, after which nothing was claimed yet."""
        drawn = self._drawn_before
        self._writers = {writer: self._writers.get(writer, drawn) for writer in tick.writers}
        self._drawn_before = self._drawn
        self._ceiling = min(self._drawn, *self._writers.values()) if self._writers else self._drawn

    def drawn(self, sequence: int) -> None:
        """Somebody has drawn a sequence, for it was claimed."""
        self._drawn = max(self._drawn, sequence)

    def timed(self, claim_seconds: float, look_seconds: float) -> None:
        """A claim and the look for what comes before its rows, each in a statement of its own, took so long."""
        if self.in_use:
            return
        now = clock.now()
        if look_seconds < max(claim_seconds, _LEAST_DEAR):
            self._next_trial, self._dear_trials = now + _TRIAL_SECONDS, 0
            self._floors.clear()
            self._next_from_first.clear()
            return
        self._dear_trials += 1
        if self._dear_trials >= _TRIALS or self._floors:
            self._dear_until, self._dear_trials = now + _DEAR_SECONDS, 0

    def verified(self, last: Mapping[KeyId, int], hidden: Mapping[KeyId, Predecessor]) -> None:
        """Rows of these keys were claimed, up to these sequences, and this comes before them that is not in hand."""
        for key_id, sequence in last.items():
            if key_id not in hidden and key_id not in self._lowered:
                self._raise(key_id, min(sequence, self._ceiling))

    def lower(self, rows: Iterable[Delivery]) -> None:
        """These rows are to go back: they will be unresolved, and not in hand."""
        for row in rows:
            if row.key_id is not None:
                self._lowered.add(row.key_id)
                below = row.message.meta.sequence - 1
                if self._floors.get(row.key_id, 0) > below:
                    self._floors[row.key_id] = below

    def forget(self) -> None:
        """Somebody else may have led meanwhile, or another server taken over, which has not drawn as much."""
        self._floors.clear()
        self._writers.clear()
        self._drawn = self._drawn_before = self._ceiling = 0

    def _raise(self, key_id: KeyId, floor: int) -> None:
        known = self._floors.pop(key_id, 0)  # it goes to the end: who has not been seen for longest is first
        self._floors[key_id] = max(known, floor)
        if len(self._floors) > _MOST_KEYS:
            del self._floors[next(iter(self._floors))]


def last_of_keys(rows: Iterable[Delivery]) -> dict[KeyId, int]:
    """The highest sequence of each key among them."""
    last: dict[KeyId, int] = {}
    for row in rows:
        if row.key_id is not None:
            last[row.key_id] = max(last.get(row.key_id, 0), row.message.meta.sequence)
    return last

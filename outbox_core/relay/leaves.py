"""The leaf dispatchers of a relay, each with an outage of its own, shared by all its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from outbox_core.dispatcher import Dispatcher, Probing, Routing, check_dispatches
from outbox_core.relay.breaker import Breaker
from outbox_core.relay.leaf import Leaf
from outbox_core.routes import leaf_of

if TYPE_CHECKING:
    from outbox_core.relay.backoff import Backoff


PROBE_SECONDS: Final = 5.0
"""The longest wait between two probes of a destination that is away: they cost little, and it is to be seen soon."""

MOST_TOPICS: Final = 10_000
"""Topics that are remembered. Where they are made from ids there is no end of them."""


class Leaves:
    """Finds the leaf for a topic, once per topic."""

    def __init__(self, root: Dispatcher, backoff: Backoff, patience: float) -> None:
        self._root = root
        self.many: Final = isinstance(root, Routing)
        """Whether there may be several destinations."""
        self._backoff = backoff
        self._patience = patience
        self._by_topic: dict[str, Leaf] = {}
        self._by_dispatcher: dict[int, Leaf] = {}
        self._listeners: list[Callable[[Leaf], None]] = []
        self.found: Callable[[Leaf], None] | None = None
        """Called with each leaf when it is first met."""

    def on_change(self, listener: Callable[[Leaf], None]) -> None:
        """Be told whenever a leaf's breaker opens, half opens or closes."""
        self._listeners.append(listener)

    def of(self, topic: str) -> Leaf:
        """The leaf for a topic. Raises what a router's own ``route`` raises, and what is wrong with its answer."""
        leaf = self._by_topic.get(topic)
        if leaf is None:
            leaf = self._leaf(leaf_of(self._root, topic))
            if len(self._by_topic) >= MOST_TOPICS:
                self._forget_topics()
            leaf.topics.add(topic)
            self._by_topic[topic] = leaf
        return leaf

    def _forget_topics(self) -> None:
        """Begin anew. Rows for a destination that is away are then claimed and given back once for each topic."""
        self._by_topic.clear()
        for leaf in self._by_dispatcher.values():
            leaf.topics.clear()

    def shut_topics(self, more: Sequence[Leaf] = ()) -> list[str]:
        """Topics whose destination takes nothing just now, as far as seen, and those of ``more`` destinations."""
        leaves = self._by_dispatcher.values()
        return [topic for leaf in leaves if leaf.is_shut or leaf in more for topic in leaf.topics]

    def is_away(self, topic: str) -> bool:
        """Whether the destination of a topic is away, as far as seen."""
        leaf = self._by_topic.get(topic)
        return leaf is not None and leaf.is_open

    def stuck(self, now: float) -> list[Leaf]:
        """Destinations that do not answer, where there are others."""
        return [leaf for leaf in self._by_dispatcher.values() if leaf.is_stuck(now)] if self.many else []

    @property
    def in_flight(self) -> bool:
        """Whether a message is with a dispatcher."""
        return any(leaf.in_flight for leaf in self._by_dispatcher.values())

    @property
    def all_away(self) -> bool:
        """Whether there is nowhere to dispatch to: a single destination, and it is away."""
        return not self.many and any(leaf.is_open for leaf in self._by_dispatcher.values())

    @property
    def all_shut(self) -> bool:
        """Whether nothing that is claimed could be dispatched just now: a single destination, and it is shut."""
        return not self.many and any(leaf.is_shut for leaf in self._by_dispatcher.values())

    @property
    def is_trying(self) -> bool:
        """Whether a message has gone ahead to see whether its destination is back."""
        return any(leaf.is_shut and not leaf.is_open for leaf in self._by_dispatcher.values())

    def _leaf(self, dispatcher: Dispatcher) -> Leaf:
        leaf = self._by_dispatcher.get(id(dispatcher))
        if leaf is None:
            # Its probe is not looked at: messages that it can deliver must not fail for that.
            check_dispatches(dispatcher)
            backoff = self._backoff
            if isinstance(dispatcher, Probing):
                backoff = replace(backoff, cap=min(backoff.cap, PROBE_SECONDS))
            leaf = Leaf(dispatcher, Breaker(backoff, self._patience), self._tell, is_shared=self._has_several)
            self._by_dispatcher[id(dispatcher)] = leaf
            if self.found is not None:
                self.found(leaf)
        return leaf

    def _has_several(self) -> bool:
        return len(self._listeners) > 1

    def _tell(self, leaf: Leaf) -> None:
        for listener in self._listeners:
            listener(leaf)

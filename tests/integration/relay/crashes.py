"""Every named moment of its work at which a relay is killed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Crash:
    """A moment to die at, and what may have become of the messages by then."""

    point: str
    nth: int = 1
    topic: str = "ok"
    stop_at: str = ""
    loses: str = ""
    """The step whose answer is lost once, with rows leased that the relay does not know of."""
    may_repeat: bool = False
    """Whether a broker may have acknowledged messages whose completion was not on record."""
    may_charge: bool = True
    """Whether leases may have been taken that ended without an outcome."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.point, str(self.nth), self.topic, self.stop_at, self.loses)))


CRASHES = [
    Crash("claim.before", may_charge=False),
    Crash("claim.during"),
    Crash("claim.after"),
    Crash("dispatch.before"),
    Crash("dispatch.acknowledged", may_repeat=True),
    Crash("dispatch.acknowledged", nth=4, may_repeat=True),
    Crash("publish.before", may_repeat=True),
    Crash("publish.during", may_repeat=True),
    Crash("publish.after", may_repeat=True),
    Crash("fail.during", topic="failing"),
    Crash("fail.after", topic="failing"),
    Crash("release.before", topic="slow", stop_at="Claimed"),
    Crash("release.during", topic="slow", stop_at="Claimed"),
    Crash("release.after", topic="slow", stop_at="Claimed"),
    Crash("claim_keys.before", topic="failing"),
    Crash("claim_keys.during", topic="failing"),
    Crash("claim_keys.after", topic="failing"),
    Crash("claim_keys.after", nth=2, topic="hesitant", may_repeat=True),
    Crash("undo_claim.before", loses="claim"),
    Crash("undo_claim.during", loses="claim"),
    Crash("undo_claim.after", loses="claim", may_charge=False),
    Crash("undo_claim.before", topic="failing", loses="claim_keys"),
    Crash("undo_claim.after", topic="failing", loses="claim_keys"),
    Crash("campaign.during", may_charge=False),
    Crash("campaign.after", may_charge=False),
    Crash("heartbeat.during", may_repeat=True),
    Crash("resign.during", stop_at="Published", may_repeat=True),
    Crash("resign.after", stop_at="Published", may_repeat=True),
    Crash("observed.Stopped", stop_at="Published", may_repeat=True),
]

"""The relay claims committed messages, dispatches them and records what became of each.

::

    Relay (relay.py) -> Run (run.py) -> for each table a TablePipeline (pipeline.py):

      Claimer            claiming/claimer.py       when to claim, and what   <- Leader (leader.py): may it
         | asks Scan     claiming/scan.py          from which position       <- Wakeups: is there work
         | ClaimExecutor claiming/claim.py         sends one claim
        [=] mailbox: Batch                         of deliveries; InFlight (in_flight.py) owns their stages
      Admission          ordering/admission.py     batches in the order of their claims
         | asks Keys     ordering/keys.py          owns key order; held and parked keys; puts rows into `ready`
      Pools              dispatching/pool.py       a queue and workers for each destination
         | asks Gate     dispatching/gate.py       may it start now: Breaker, Quarantine
         | asks Slots    dispatching/slots.py      how many at a time, over all tables
         |               dispatching/destinations.py   [=] mailbox: changes of state, for each TablePipeline
      Settlement         completing/settlement.py  outcome -> verdict: publish, reschedule, dead-letter, release
         |  [=] mailbox: TimedOut -> TimeoutReview completing/timeouts.py, and back to Settlement
        [=] mailbox: VerdictBatch
      Completer          completing/completer.py   writes verdicts, fenced by their tokens; returns Written
         |
      TablePipeline      complete(): frees keys and room; _follow_destinations(): parks, unparks

Work flows down by calls; ``[=]`` is a mailbox, with another task behind it. What comes back up is a return value, used
in the two loops of `TablePipeline` and nowhere else. A fact is asked of its owner; that the relay is stopping, of
`outbox_core.runtime.shutdown`.
"""

from outbox_core.relay.relay import Relay

__all__ = ["Relay"]

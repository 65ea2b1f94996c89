"""Handing messages to a dispatcher: when, and what its answer means."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_RELAY: Final = "tests/integration/relay"
_POOL: Final = "outbox_core/relay/dispatching/pool.py"

MUTATIONS: Final = (
    Mutation(
        name="completion-before-ack",
        breaks="A message is marked as published as soon as its dispatch has begun.",
        promise="Delivery is at least once: the acknowledgement comes before the mark.",
        file=_POOL,
        old="returned = await dispatch(row.message)",
        new="returned = asyncio.ensure_future(dispatch(row.message)) and None",
        tests=(
            f"{_RELAY}/test_failures.py::test_a_permanent_error_is_dead_at_once",
            f"{_RELAY}/test_failures.py::test_a_failure_of_one_message_costs_no_other_one",
        ),
    ),
    Mutation(
        name="window-completed-before-ack",
        breaks="A window of messages is marked as published as soon as its dispatch has begun.",
        promise="Delivery is at least once: the acknowledgement comes before the mark.",
        file=_POOL,
        old="outcomes = await dispatch_window(destination, rows, now + self._timeout)",
        new=(
            "_begun = asyncio.ensure_future(dispatch_window(destination, rows, now + self._timeout))\n"
            "            outcomes = [None] * len(rows)"
        ),
        tests=(
            f"{_RELAY}/test_bad_dispatchers.py::test_a_window_without_an_outcome_for_each_message_acknowledges_none",
        ),
    ),
    Mutation(
        name="cut-off-counts-as-ack",
        breaks="A dispatch that was cut off and returned quietly counts as acknowledged.",
        promise="Delivery is at least once: only an acknowledgement is one.",
        file=_POOL,
        old="if worker.overdue or cancelled:",
        new="if cancelled and outcome is not None:",
        tests=(
            f"{_RELAY}/test_bad_dispatchers.py::test_swallowing_the_stop_and_returning_is_no_acknowledgement",
        ),
    ),
    Mutation(
        name="dispatch-after-the-lease",
        breaks="A dispatch begins although too little of its lease is left.",
        promise="A relay that has lost its lease sends nothing more.",
        file=_POOL,
        old="if now >= row.expires:",
        new="if False:",
        tests=(
            f"{_RELAY}/test_leases.py::test_a_slow_batch_gives_its_unstarted_rows_back",
            f"{_RELAY}/test_frozen.py::test_a_thawed_relay_dispatches_nothing_of_its_old_leases",
        ),
    ),
    Mutation(
        name="no-lease-margin",
        breaks="A lease is relied on up to its end, with no time kept for the dispatch and its record.",
        promise="A relay that has lost its lease sends nothing more.",
        file="outbox_core/relay/settings.py",
        old="return self.lock_ttl - self.dispatch_timeout - self.database_timeout - MARGIN",
        new="return self.lock_ttl",
        tests=(
            "tests/unit/relay/test_settings.py::test_a_dispatch_that_may_start_ends_within_its_lease",
            f"{_RELAY}/test_leases.py::test_a_slow_batch_gives_its_unstarted_rows_back",
        ),
    ),
    Mutation(
        name="outage-charges-attempts",
        breaks="Messages pay with an attempt for an unavailable broker.",
        promise="An outage of the broker costs no message its attempts.",
        file="outbox_core/relay/completing/settlement.py",
        old="self._wait(failed, wait, refund=True)",
        new="self._wait(failed, wait, refund=False)",
        tests=(f"{_RELAY}/test_outages.py::test_a_long_outage_kills_nothing_and_costs_no_attempt[plain-2]",),
    ),
    Mutation(
        name="every-try-is-later",
        breaks="A destination that answers its probe is tried less and less often, as if it were unavailable.",
        promise="Messages that drive their broker away do not block it for others.",
        file="outbox_core/relay/dispatching/breaker.py",
        old="            self._openings = 0\n",
        new="",
        tests=(
            "tests/simulation/test_poison.py::test_many_poison_messages_do_not_block_a_destination_for_others",
        ),
    ),
    Mutation(
        name="any-answered-probe-counts",
        breaks="A broker that says that it takes nothing is believed to be there, because it answers its probe.",
        promise="An outage of the broker costs no message its attempts.",
        file="outbox_core/relay/dispatching/breaker.py",
        old="self.probe_answered = answered and not self._broker_full",
        new="self.probe_answered = answered or self._broker_full",
        tests=(
            "tests/simulation/test_poison.py::test_a_broker_that_says_it_takes_nothing_costs_no_message_its_attempts",
            "tests/unit/relay/dispatching/test_breaker.py::test_an_answered_probe_of_a_broker_that_is_full_shows_nothing",
            "tests/unit/relay/dispatching/test_quarantine.py::test_a_broker_that_is_full_makes_no_suspects_before_another_message_has_arrived",
        ),
    ),
    Mutation(
        name="claims-while-one-tries",
        breaks="A destination is claimed for while a half-open trial is under way.",
        promise="While a broker is unavailable its rows are not claimed again and again.",
        file="outbox_core/relay/dispatching/destinations.py",
        old="return self.breaker.is_open or (self.breaker.is_half_open and self.gate.dispatching > 0)",
        new="return self.breaker.is_open",
        tests=(
            "tests/simulation/test_poison.py::test_a_backlog_is_not_leased_over_and_over_while_one_after_the_other_tries",
        ),
    ),
    Mutation(
        name="one-table-tries-on-and-on",
        breaks="The table whose half-open trial failed may send the next one, too.",
        promise="Messages that drive their broker away do not block it for others.",
        file="outbox_core/relay/dispatching/quarantine.py",
        old="yields = _YIELDING_SECONDS if is_shared and self._failed_trial_of is not None else 0.0",
        new="yields = 0.0",
        tests=(
            "tests/simulation/test_poison.py::test_poison_messages_of_one_table_do_not_block_a_destination_for_another",
        ),
    ),
    Mutation(
        name="windows-quote-each-other",
        breaks="An error of many messages is searched for its own message's payload alone.",
        promise="No error shows a payload.",
        file=_POOL,
        old="outcome, seconds, now, shown.get(id(outcome)))",
        new="outcome, seconds, now)",
        tests=(
            "tests/unit/relay/dispatching/test_windows.py::test_an_error_of_several_messages_shows_none_of_them_to_the_others",
        ),
    ),
    Mutation(
        name="stop-keeps-rows",
        breaks="A relay that stops does not release what it has not dispatched.",
        promise="What a stopped relay had not begun is free at once.",
        file="outbox_core/relay/pipeline.py",
        old='self._settlement.release(self._pools.withdraw(), "the relay stopped")',
        new="self._pools.withdraw()",
        tests=(f"{_RELAY}/test_leases.py::test_a_stop_ends_in_its_time_whatever_the_broker_does[hanging]",),
    ),
    Mutation(
        name="stop-waits-for-the-broker",
        breaks="A stop lets a dispatch go on for as long as it likes.",
        promise="A stopped relay is gone within its grace and a second.",
        file=_POOL,
        old="asyncio.ensure_future(self._shutdown.until_deadline())",
        new="asyncio.ensure_future(asyncio.Event().wait())",
        tests=(f"{_RELAY}/test_leases.py::test_a_stop_ends_in_its_time_whatever_the_broker_does[hanging]",),
    ),
    Mutation(
        name="dispatches-after-a-stop",
        breaks="A stop lets further dispatches begin for a moment.",
        promise="Nothing is begun after a stop.",
        file="outbox_core/relay/pipeline.py",
        old="""                stopping.start_soon(self._stop_dispatching)
                loops.cancel_scope.cancel()
""",
        new="""                shutdown.requested = False
                await anyio.sleep(0.3)
                shutdown.request(shutdown.deadline - clock.now())
                stopping.start_soon(self._stop_dispatching)
                loops.cancel_scope.cancel()
""",
        tests=(
            "tests/unit/relay/test_stop.py::test_nothing_is_begun_after_a_stop_while_a_claim_is_not_answered",
        ),
    ),
    Mutation(
        name="lost-claims-undone-last",
        breaks="A stop undoes lost claims only when the last dispatch has ended, by when it has no time left.",
        promise="What a stopped relay had not begun is free at once.",
        file="outbox_core/relay/pipeline.py",
        old="""            # Beside dispatches that may last until the deadline, after which there is no time.
            await self._undo_lost_claims()
""",
        new="",
        tests=(
            (
                "tests/unit/relay/test_stop.py"
                "::test_lost_claims_are_undone_beside_a_dispatch_that_lasts_until_the_deadline"
            ),
        ),
    ),
    Mutation(
        name="cancelled-loops-in-silence",
        breaks="A loop of the relay that is cancelled from outside ends, and the relay goes on without it.",
        promise="A relay works, or it ends with an error.",
        file="outbox_core/runtime/supervision.py",
        old="if not cancelled or not shutdown.requested:",
        new="if not cancelled:",
        tests=(
            (
                "tests/unit/relay/test_cancelled_parts.py"
                "::test_a_task_of_the_relay_that_is_cancelled_from_outside_ends_the_relay"
            ),
        ),
    ),
)

"""Handing messages to a dispatcher: when, and what its answer means."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_RELAY: Final = "tests/integration/relay"
_OUTLET: Final = "outbox_core/relay/outlet.py"

MUTATIONS: Final = (
    Mutation(
        name="completion-before-ack",
        breaks="A message is marked as published as soon as its dispatch has begun.",
        promise="Delivery is at least once: the acknowledgement comes before the mark.",
        file=_OUTLET,
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
        file=_OUTLET,
        old="outcomes = await dispatch_window(leaf, rows, now + self._timeout)",
        new=(
            "_begun = asyncio.ensure_future(dispatch_window(leaf, rows, now + self._timeout))\n"
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
        file=_OUTLET,
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
        file=_OUTLET,
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
            "tests/unit/test_relay_settings.py::test_a_dispatch_that_may_start_ends_within_its_lease",
            f"{_RELAY}/test_leases.py::test_a_slow_batch_gives_its_unstarted_rows_back",
        ),
    ),
    Mutation(
        name="outage-charges-attempts",
        breaks="Messages pay with an attempt for a broker that is away.",
        promise="An outage of the broker costs no message its attempts.",
        file="outbox_core/relay/settlement.py",
        old="self._wait(row, error, wait, seconds, refund=True)",
        new="self._wait(row, error, wait, seconds, refund=False)",
        tests=(f"{_RELAY}/test_outages.py::test_a_long_outage_kills_nothing_and_costs_no_attempt[plain-2]",),
    ),
    Mutation(
        name="every-try-is-later",
        breaks="A destination that answers its probe is tried further and further apart, as if it were away.",
        promise="Messages that drive their broker away do not shut it for others.",
        file="outbox_core/relay/breaker.py",
        old="                self._openings = 0\n",
        new="",
        tests=(
            "tests/simulation/test_poison.py::test_many_messages_that_drive_it_away_do_not_shut_a_destination_for_others",
        ),
    ),
    Mutation(
        name="any-answered-probe-counts",
        breaks="A broker that says that it takes nothing is believed to be there, because it answers its probe.",
        promise="An outage of the broker costs no message its attempts.",
        file="outbox_core/relay/breaker.py",
        old="answered = answered and not self._told",
        new="answered = answered or self._told",
        tests=(
            "tests/simulation/test_poison.py::test_a_broker_that_says_it_takes_nothing_costs_no_message_its_attempts",
            "tests/unit/test_relay_breaker.py::test_a_probe_of_a_broker_that_says_it_takes_nothing_tells_nothing",
        ),
    ),
    Mutation(
        name="claims-while-one-tries",
        breaks="A destination is claimed for while one message tries whether it is back.",
        promise="While a broker is away its rows are not claimed again and again.",
        file="outbox_core/relay/leaf.py",
        old="return self.is_open or (self.breaker.state is BreakerState.HALF_OPEN and bool(self.in_flight))",
        new="return self.is_open",
        tests=(
            "tests/simulation/test_poison.py::test_a_backlog_is_not_leased_over_and_over_while_one_after_the_other_tries",
        ),
    ),
    Mutation(
        name="one-table-tries-on-and-on",
        breaks="The table whose message went ahead in vain may send the next one, too.",
        promise="Messages that drive their broker away do not shut it for others.",
        file="outbox_core/relay/leaf.py",
        old="yields = self._yielding is not None and self._is_shared()",
        new="yields = False",
        tests=("tests/simulation/test_poison.py::test_those_of_one_table_do_not_shut_it_for_another",),
    ),
    Mutation(
        name="windows-quote-each-other",
        breaks="An error of many messages is looked through for its own message's payload alone.",
        promise="No error shows a payload.",
        file="outbox_core/relay/settlement.py",
        old="            row.shown = shown\n",
        new="            row.shown = None\n",
        tests=(
            "tests/unit/test_relay_windows.py::test_an_error_of_several_messages_shows_none_of_them_to_the_others",
        ),
    ),
    Mutation(
        name="stop-keeps-rows",
        breaks="A relay that stops does not give back what it has not dispatched.",
        promise="What a stopped relay had not begun is free at once.",
        file="outbox_core/relay/lane.py",
        old='self._settlement.give_back(outlet.flush(), "the relay stopped")',
        new="outlet.flush()",
        tests=(f"{_RELAY}/test_leases.py::test_a_stop_ends_in_its_time_whatever_the_broker_does[hanging]",),
    ),
    Mutation(
        name="stop-waits-for-the-broker",
        breaks="A stop lets a dispatch go on for as long as it likes.",
        promise="A stopped relay is gone within its grace and a second.",
        file=_OUTLET,
        old="if deadline < self._stop_by:",
        new="if deadline < 0:",
        tests=(f"{_RELAY}/test_leases.py::test_a_stop_ends_in_its_time_whatever_the_broker_does[hanging]",),
    ),
    Mutation(
        name="dispatches-after-a-stop",
        breaks="A stop that waits for the database lets further dispatches begin meanwhile.",
        promise="Nothing is begun after a stop.",
        file="outbox_core/relay/run.py",
        old="lane.halt(self._deadline)",
        new="pass",
        tests=(
            "tests/unit/test_relay_halt.py::test_nothing_is_begun_after_a_stop_while_a_claim_is_not_answered",
        ),
    ),
)

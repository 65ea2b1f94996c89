"""The fault matrix: 33 ways in which things go wrong, and where it is shown that the promises hold all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.plan import Broker

RELAY = "tests/integration/relay"
ADAPTERS = "tests/integration/adapters"


@dataclass(frozen=True, slots=True)
class Row:
    """``kinds`` are those of the nemesis, all of which must have been felt; ``tests`` are run by their ids.

    Of ``by_broker`` the seed picks one broker's in the short form; the long form runs them all. ``points`` are moments
    at which a relay must have died in the long form, which comes to every one of them with every broker.
    """

    number: int
    fault: str
    kinds: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    by_broker: Mapping[Broker, tuple[str, ...]] = field(default_factory=dict[Broker, tuple[str, ...]])
    points: tuple[str, ...] = ()


def _crash(point: str) -> str:
    return f"{RELAY}/test_crashes.py::test_a_crash_loses_nothing_and_makes_nothing_up[{point}]"


def _relay(*names: str) -> tuple[str, ...]:
    return tuple(f"{RELAY}/{name}" for name in names)


def _adapters(kafka: str, nats: str, amqp: str) -> Mapping[Broker, tuple[str, ...]]:
    return {
        "kafka": (f"{ADAPTERS}/test_kafka_{kafka}",),
        "nats": (f"{ADAPTERS}/test_nats_{nats}",),
        "amqp": (f"{ADAPTERS}/test_amqp_{amqp}",),
    }


ROWS = (
    Row(
        1,
        "relay killed before its claim commits",
        (),
        (_crash("claim.before 1 ok"), _crash("claim.during 1 ok")),
        points=("claim.before", "claim.during"),
    ),
    Row(
        2,
        "relay killed after its claim, before the dispatch",
        (),
        (_crash("claim.after 1 ok"), _crash("dispatch.before 1 ok")),
        points=("claim.after", "dispatch.before"),
    ),
    Row(
        3,
        "relay killed after the broker's ack, before its record",
        (),
        (_crash("dispatch.acknowledged 1 ok"), _crash("publish.before 1 ok")),
        points=("dispatch.after", "publish.before"),
    ),
    Row(
        4,
        "relay killed within a batch, a record, a release; replay and cleaner killed",
        ("kill_relay", "kill_relay_at_a_point"),
        (
            _crash("dispatch.acknowledged 4 ok"),
            _crash("publish.during 1 ok"),
            _crash("release.during 1 slow Claimed"),
            "tests/integration/test_replay_interrupted.py::test_a_killed_process_is_taken_over",
            "tests/integration/test_cleaner.py::test_a_pass_that_failed_goes_on_from_where_it_was_with_smaller_batches",
            "tests/integration/test_cleaner_killed.py::test_killed_between_two_batches",
            "tests/integration/test_cleaner_killed.py::test_killed_while_a_batch_is_being_deleted",
        ),
        points=("dispatch.during", "publish.during", "fail.during"),
    ),
    Row(
        5,
        "relay frozen for longer than its leases",
        ("freeze_relay",),
        _relay("test_frozen.py::test_what_a_frozen_relay_writes_too_late_is_refused_and_counted[worker]"),
    ),
    Row(
        6,
        "leader frozen",
        ("freeze_relay",),
        _relay(
            "test_frozen.py::test_what_a_frozen_relay_writes_too_late_is_refused_and_counted[leader]",
            "test_leadership.py::test_a_thawed_leader_steps_down_and_claims_nothing",
        ),
    ),
    Row(
        7,
        "broker frozen",
        ("freeze_broker",),
        _relay("test_outages.py::test_a_dead_leaf_does_not_stop_the_other[None-True]"),
    ),
    Row(8, "broker restarted and killed", ("restart_broker", "kill_broker")),
    Row(9, "PostgreSQL restarted and killed", ("restart_postgres", "kill_postgres")),
    Row(
        10,
        "sessions of leader, listener and worker terminated",
        ("terminate_sessions",),
        _relay(
            "test_leadership.py::test_a_leader_whose_control_session_is_ended_steps_down_and_is_elected_again"
        ),
    ),
    Row(
        11,
        "black hole between relay and PostgreSQL",
        ("cut_database", "freeze_postgres"),
        _relay("test_lost_answers.py::test_every_wait_is_bounded_while_nothing_answers"),
    ),
    Row(
        12,
        "black hole between relay and broker",
        ("cut_broker", "refuse_broker", "stop_relay_cut_off"),
        _relay("test_leases.py::test_a_stop_ends_in_its_time_whatever_the_broker_does"),
    ),
    Row(
        13,
        "answer lost although the work was done",
        (
            "lose_database_answers",
            "lose_broker_answers",
            "lose_commit_answers",
            "reset_database",
            "reset_broker",
        ),
        _relay(
            "test_lost_answers.py::test_a_claim_whose_answer_was_lost_is_undone_and_charges_nothing",
            "test_lost_answers.py::test_a_completion_whose_answer_was_lost_is_neither_repeated_nor_called_lost",
        ),
    ),
    Row(
        14,
        "slow broker, narrow network",
        ("slow_broker", "narrow_broker"),
        _relay("test_leases.py::test_a_slow_batch_gives_its_unstarted_rows_back"),
    ),
    Row(
        15,
        "broker's disk full",
        by_broker={
            "kafka": ("tests/faults/test_kafka_disk.py::test_a_full_disk_is_an_outage_that_ends",),
            "nats": (
                "tests/faults/test_nats_storage.py::test_no_storage_is_an_outage_that_ends",
                f"{ADAPTERS}/test_nats_publishing.py::test_a_full_stream_is_retried",
            ),
            "amqp": (f"{ADAPTERS}/test_amqp_connection.py::test_a_disk_alarm_is_an_outage_that_ends",),
        },
    ),
    Row(16, "PostgreSQL's disk full", (), ("tests/faults/test_disk.py",)),
    Row(
        17,
        "database's clock jumps forward and back",
        ("jump_database_clock",),
        ("tests/faults/test_clock.py::test_a_clock_that_goes_back_delays_and_loses_nothing",),
    ),
    Row(18, "relay's clock jumps", ("jump_relay_clock",)),
    Row(
        19,
        "two leaders",
        (),
        _relay(
            "test_leadership.py::test_a_deposed_leader_claims_nothing",
            "test_leadership.py::test_workers_side_by_side_lose_nothing_and_repeat_nothing",
            "test_two_leaders.py::test_a_leader_that_does_not_hear_of_its_successor_claims_nothing",
            "test_two_leaders.py::test_what_a_leader_that_does_not_hear_of_its_successor_writes_too_late_is_refused",
            "test_two_leaders.py::test_two_leaders_of_one_term_have_no_row_in_common",
        ),
    ),
    Row(
        20,
        "no connection to be had",
        (),
        _relay(
            "test_database_away.py::test_no_more_connections_are_to_be_had",
            "test_leases.py::test_many_tables_share_a_few_sessions_and_do_not_starve_each_other",
        ),
    ),
    Row(
        21,
        "poison message: refused for good, or fatal to the process",
        (),
        _relay(
            "test_crashes.py::test_a_message_that_kills_the_relay_is_dead_in_the_end_and_the_others_arrive",
            "test_failures.py::test_a_permanent_error_is_dead_at_once",
        ),
    ),
    Row(
        22,
        "message larger than the broker takes",
        by_broker=_adapters(
            "publishing.py::test_a_message_too_large_for_the_topic_fails_permanently_and_alone",
            "publishing.py::test_a_message_too_large_for_the_stream_fails_permanently",
            "connection.py::test_a_message_too_large_for_the_broker_fails_permanently_and_alone",
        ),
    ),
    Row(
        23,
        "no topic, no stream, no binding",
        by_broker=_adapters(
            "publishing.py::test_an_unknown_topic_is_retried_with_a_clear_reason_and_holds_up_no_other_topic",
            "publishing.py::test_a_missing_stream_is_retried_with_a_clear_reason",
            "publishing.py::test_a_returned_message_is_not_delivered",
        ),
    ),
    Row(
        24,
        "credentials refused, expired",
        by_broker=_adapters(
            "connection.py::test_an_expired_password_is_requested_again",
            "connection.py::test_an_expired_password_is_requested_again",
            "connection.py::test_an_expired_password_is_requested_again",
        ),
    ),
    Row(
        25,
        "rows edited by hand",
        (),
        _relay(
            "test_bad_input.py::test_a_row_edited_by_hand_stops_no_other_one",
            "test_bad_input.py::test_impossible_states_are_refused_by_the_table",
        ),
    ),
    Row(
        26,
        "serialization failure, deadlock, lock not to be had",
        ("lock_table",),
        (
            "tests/faults/test_transient_errors.py",
            "tests/integration/test_enqueue_statements.py::test_a_serialisation_failure_can_be_retried",
        ),
    ),
    Row(
        27,
        "transaction pooler",
        (),
        _relay(
            "test_pooler.py::test_a_relay_behind_a_pooler_says_so_and_delivers",
            "test_pooler.py::test_two_relays_behind_a_pooler_do_not_both_lead",
            "test_pooler.py::test_the_pooler_and_the_server_behind_it_fail",
        ),
    ),
    Row(
        28,
        "server turned read-only, failover to a stand-by",
        ("read_only_postgres",),
        _relay("test_failover.py::test_a_relay_follows_to_the_promoted_stand_by"),
    ),
    Row(
        29,
        "cancelled at the first 20 awaits and each sixth after them; at every one in the long form",
        (),
        _relay(
            "test_cancellation.py::test_cut_off_at_every_await[work_and_stop-cancel_the_caller]",
            "test_cancellation.py::test_cut_off_at_every_await[start_and_stop-cancel_everything]",
            "test_stopping.py::test_cancelling_stops_in_order",
        ),
    ),
    Row(
        30,
        "event loop blocked",
        ("block_event_loop",),
        _relay("test_blocked_loop.py::test_blocking_the_event_loop_costs_the_leadership_and_nothing_else"),
    ),
    Row(
        31,
        "flood of notifications, observer that raises",
        ("notify_storm",),
        (
            f"{RELAY}/test_observers.py::test_observers_cannot_break_the_relay",
            "tests/simulation/test_stand_by.py::test_hints_do_not_make_a_stand_by_spin",
        ),
    ),
    Row(
        32,
        "long transaction that keeps dead row versions",
        ("long_transaction",),
        _relay("test_old_snapshot.py::test_claims_stay_quick_under_an_old_snapshot"),
    ),
    Row(
        33,
        "another event loop, a forked child",
        (),
        _relay(
            "test_processes.py::test_another_loop_and_a_forked_child_get_a_clear_error",
            "test_processes.py::test_the_end_of_asyncio_run_ends_a_relay_that_nobody_stopped",
        ),
    ),
)

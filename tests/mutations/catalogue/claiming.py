"""Which rows a claim takes, and what it puts on record."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_STORES: Final = "tests/contract/test_stores.py::TestPostgres"
_RELAY: Final = "tests/integration/relay"
_CLAIM: Final = "outbox_core/stores/postgres/queries/claim.sql"

MUTATIONS: Final = (
    Mutation(
        name="claim-without-attempts",
        breaks="A claim does not count an attempt.",
        promise="A message that takes its relay down is a dead letter after `max_attempts`.",
        file="outbox_core/stores/postgres/queries/lease.sql",
        old="attempts = least(attempts, 2147483646) + 1",
        new="attempts = attempts",
        tests=(
            f"{_STORES}::test_a_claim_brings_what_was_enqueued",
            f"{_RELAY}/test_failures.py::test_a_row_whose_last_attempt_has_no_outcome_is_buried[3-True]",
        ),
    ),
    Mutation(
        name="dispatched-beyond-the-last-attempt",
        breaks="A row whose last attempt had no outcome is dispatched once more.",
        promise="A message that takes its relay down is a dead letter after `max_attempts`.",
        file="outbox_core/relay/lane.py",
        old="if meta.attempts > max_attempts:",
        new="if False:",
        tests=(f"{_RELAY}/test_failures.py::test_a_row_whose_last_attempt_has_no_outcome_is_buried[3-True]",),
    ),
    Mutation(
        name="cursor-by-sequence",
        breaks="A claim reads on from the highest sequence that was published.",
        promise="Every committed message is published, also one that commits late.",
        file=_CLAIM,
        old="AND available_at <= now()",
        new="""AND available_at <= now()
                AND sequence > coalesce((SELECT max(sequence) FROM {table} WHERE published_at IS NOT NULL), 0)""",
        tests=(f"{_RELAY}/test_order.py::test_a_message_that_commits_late_is_delivered_at_once[busy]",),
    ),
    Mutation(
        name="position-never-goes-back",
        breaks="The place to read on from stays where it is when an older transaction ends.",
        promise="Every committed message is published, also one that commits late.",
        file="outbox_core/relay/position.py",
        old="self.back_to((self._base, *map(_before, gone)))",
        new="self.back_to((self._base,))",
        tests=(
            (
                "tests/unit/test_relay_position.py"
                "::test_a_transaction_that_ends_takes_the_position_back_to_before_it_began"
            ),
            "tests/unit/test_relay_position.py::test_after_a_look_no_committed_row_lies_behind_the_position",
        ),
    ),
    Mutation(
        name="stamp-before-transaction-id",
        breaks="A message is stamped before its transaction can be seen to be running.",
        promise="Every committed message is published, also one that commits late.",
        file="outbox_core/stores/postgres/queries/enqueue.sql",
        old="WHEN pg_catalog.pg_current_xact_id() IS NOT NULL",
        new="WHEN true",
        tests=(
            (
                "tests/integration/test_enqueue_statements.py"
                "::test_a_waiting_writer_is_visible_as_a_running_transaction"
            ),
        ),
    ),
    Mutation(
        name="leases-never-end",
        breaks="What a relay that died had leased is never claimed again.",
        promise="Every committed message is published, or becomes a dead letter that says why.",
        file=_CLAIM,
        old="AND (locked_at IS NULL OR locked_at < now() - make_interval(secs => $3))",
        new="AND (locked_at IS NULL OR $3::float8 < 0)",
        tests=(f"{_RELAY}/test_crashes.py::test_a_claim_whose_sender_died_is_leased_until_its_time_is_over",),
    ),
    Mutation(
        name="unknown-claims-kept",
        breaks="A claim whose answer was lost is not undone.",
        promise="Trouble with the database costs no message an attempt.",
        file="outbox_core/relay/leasing.py",
        old="self.unknown.add(claim, keys)",
        new="pass",
        tests=(
            (
                f"{_RELAY}/test_lost_answers.py"
                "::test_a_claim_whose_answer_was_lost_is_undone_and_charges_nothing"
            ),
        ),
    ),
    Mutation(
        name="unknown-claims-undone-once",
        breaks="A claim whose client has gone is undone before the database is through with it, and not again.",
        promise="Trouble with the database costs no message an attempt.",
        file="outbox_core/relay/unknown.py",
        old="if found or over:",
        new="if lost.tried:",
        tests=(
            (
                f"{_RELAY}/test_lost_answers.py"
                "::test_a_claim_that_commits_after_its_client_has_gone_is_undone_all_the_same"
            ),
        ),
    ),
    Mutation(
        name="waiting-replays-take-places",
        breaks="A replayed message that waits counts among the first of its key.",
        promise="Replayed messages hold nobody up.",
        file="outbox_core/stores/postgres/queries/claim_keys.sql",
        old="replays = 0\n                        OR available_at <= now()",
        new="true OR replays = 0\n                        OR available_at <= now()",
        tests=(
            (
                f"{_RELAY}/test_order.py"
                "::test_a_replayed_message_that_waits_does_not_keep_a_failed_one_behind_it"
            ),
        ),
    ),
    Mutation(
        name="notify-only",
        breaks="A relay waits for hints and never looks by itself.",
        promise="Without its listener a relay finds messages within its `poll_interval`.",
        file="outbox_core/relay/wakeups.py",
        old="pause = self._poll_interval if calm else",
        new='pause = float("inf") if calm else',
        tests=(
            (
                f"{_RELAY}/test_database_away.py"
                "::test_without_its_listener_a_relay_finds_messages_by_looking[leader]"
            ),
        ),
    ),
)

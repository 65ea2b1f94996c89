"""Putting outcomes on record."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_STORES: Final = "tests/contract/test_stores.py::TestPostgres"
_RELAY: Final = "tests/integration/relay"
_QUERIES: Final = "outbox_core/stores/postgres/queries"
_FENCE: Final = "A relay that has lost its lease changes nothing."

MUTATIONS: Final = (
    Mutation(
        name="publish-without-fencing",
        breaks="Whoever says that a row is published is believed, with or without its lease.",
        promise=_FENCE,
        file=f"{_QUERIES}/publish.sql",
        old="WHERE message.id = done.id AND message.lock_token = done.token",
        new="WHERE message.id = done.id",
        tests=(
            f"{_STORES}::test_a_wrong_token_changes_nothing",
            f"{_RELAY}/test_leases.py::test_a_lost_lease_changes_nothing[mark]",
        ),
    ),
    Mutation(
        name="delete-without-fencing",
        breaks='With `on_published="delete"`, whoever says that a row is published is believed.',
        promise=_FENCE,
        file=f"{_QUERIES}/publish_delete.sql",
        old="WHERE message.id = done.id AND message.lock_token = done.token",
        new="WHERE message.id = done.id",
        tests=(
            f"{_STORES}::test_a_wrong_token_changes_nothing",
            f"{_RELAY}/test_leases.py::test_a_lost_lease_changes_nothing[delete]",
        ),
    ),
    Mutation(
        name="fail-without-fencing",
        breaks="A failure is recorded without its lease.",
        promise=_FENCE,
        file=f"{_QUERIES}/fail.sql",
        old="WHERE message.id = failed.id AND message.lock_token = failed.token",
        new="WHERE message.id = failed.id",
        tests=(f"{_STORES}::test_a_wrong_token_changes_nothing",),
    ),
    Mutation(
        name="one-token-for-all",
        breaks="Every claim has the same token.",
        promise=_FENCE,
        file="outbox_core/relay/claimer.py",
        old="token=uuid7(),",
        new="token=type(uuid7())(int=1),",
        tests=(
            f"{_RELAY}/test_frozen.py::test_a_frozen_relay_does_not_answer_for_the_one_that_has_its_row_now",
        ),
    ),
    Mutation(
        name="no-refund",
        breaks="A row that is given back undispatched has paid with an attempt.",
        promise="Only what was dispatched is charged.",
        file=f"{_QUERIES}/release.sql",
        old="attempts = greatest(attempts - 1, 0)",
        new="attempts = attempts",
        tests=(
            f"{_STORES}::test_a_release_refunds_the_attempt_and_frees_the_row",
            f"{_RELAY}/test_stopping.py::test_stop_waits_for_what_is_in_dispatch_and_gives_back_the_rest",
        ),
    ),
    Mutation(
        name="dead-counts-as-published",
        breaks="A message that is given up is marked as published.",
        promise="Every committed message is published, or becomes a dead letter that says why.",
        file=f"{_QUERIES}/fail.sql",
        old="dead_at = CASE WHEN failed.dead THEN now() END",
        new="published_at = CASE WHEN failed.dead THEN now() END",
        tests=(
            f"{_STORES}::test_a_failure_may_dead_letter_the_row",
            f"{_RELAY}/test_failures.py::test_a_permanent_error_is_dead_at_once",
        ),
    ),
    Mutation(
        name="secrets-kept",
        breaks="Passwords and tokens in an error's text end up in `last_error`.",
        promise="No secret and no payload is stored or shown with an error.",
        file="outbox_core/relay/summaries.py",
        old="text = pattern.sub(replacement, text)",
        new="pattern.sub(replacement, text)",
        tests=("tests/unit/test_relay_summaries.py::test_secrets_are_left_out",),
    ),
    Mutation(
        name="locked-rows-keep-others",
        breaks="Outcomes wait for a row that somebody else keeps locked.",
        promise="What holds up one row's outcome holds up no other's.",
        file="outbox_core/relay/completer.py",
        old="found = await self._aside.take_locked(batch)",
        new="return False",
        tests=(
            "tests/integration/relay/test_locked_rows.py::test_one_locked_row_holds_up_no_others_outcome[False]",
        ),
    ),
)

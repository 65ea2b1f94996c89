"""One relay leads a table, the others stand by."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_STORES: Final = "tests/contract/test_stores.py::TestPostgres"
_LEADERSHIP: Final = "tests/integration/relay/test_leadership.py"

MUTATIONS: Final = (
    Mutation(
        name="lock-on-a-pooled-session",
        breaks="The leader's lock is taken on a session of the pool.",
        promise="A leader that is silent, or has lost its lock, is replaced.",
        file="outbox_core/stores/postgres/control.py",
        old='rows = await self.fetch("SELECT pg_try_advisory_lock($1)"',
        new="""await self.fetch("SELECT 1")
        rows = await self._sessions.fetch("SELECT pg_try_advisory_lock($1)\"""",
        tests=(
            f"{_LEADERSHIP}::test_a_leader_whose_control_session_is_ended_steps_down_and_is_elected_again",
        ),
    ),
    Mutation(
        name="term-unchecked",
        breaks="A claim does not look whether its term is still the present one.",
        promise="A leader that was deposed claims nothing.",
        file="outbox_core/stores/postgres/queries/claim.sql",
        old="THEN $1::bigint IS NULL OR EXISTS (SELECT FROM leader) END",
        new="THEN $1::bigint IS NULL OR $1::bigint >= 0 END",
        tests=(
            f"{_STORES}::test_a_term_that_is_over_claims_nothing",
            f"{_LEADERSHIP}::test_a_deposed_leader_claims_nothing",
        ),
    ),
    Mutation(
        name="follow-without-term",
        breaks="A claim of held keys does not look whether its term is still the present one.",
        promise="A leader that was deposed claims nothing.",
        file="outbox_core/stores/postgres/queries/claim_keys.sql",
        old="THEN EXISTS (SELECT FROM leader) END",
        new="THEN $1::bigint >= 0 END",
        tests=(f"{_STORES}::test_a_term_that_is_over_claims_nothing",),
    ),
    Mutation(
        name="resign-for-others",
        breaks="A relay that leaves ends the term of its successor.",
        promise="An old term never touches a newer one.",
        file="outbox_core/stores/postgres/queries/resign.sql",
        old="AND term = $1",
        new="AND $1::bigint IS NOT NULL",
        tests=(f"{_LEADERSHIP}::test_a_deposed_leader_claims_nothing",),
    ),
)

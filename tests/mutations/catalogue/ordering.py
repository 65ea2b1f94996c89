"""Order within a key."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_STORES: Final = "tests/contract/test_stores.py::TestPostgres"
_ORDER: Final = "tests/integration/relay/test_order.py"
_QUERIES: Final = "outbox_core/stores/postgres/queries"
_PROMISE: Final = "Messages of one key arrive in the order of their sequences."

MUTATIONS: Final = (
    Mutation(
        name="key-by-due-time",
        breaks="Within a key, messages go by when they are due.",
        promise=_PROMISE,
        file=f"{_QUERIES}/claim_keys.sql",
        old="ORDER BY message.tenant_id, message.key, sequence",
        new="ORDER BY message.tenant_id, message.key, available_at, sequence",
        tests=(f"{_STORES}::test_no_row_overtakes_a_head_that_is_not_due",),
    ),
    Mutation(
        name="no-look-for-predecessors",
        breaks="It is not checked whether an earlier message of the key is still waiting.",
        promise=_PROMISE,
        file=f"{_QUERIES}/first_predecessor.sql",
        old="            ORDER BY sequence\n            LIMIT 1",
        new="            ORDER BY sequence\n            LIMIT 0",
        tests=(
            f"{_STORES}::test_a_predecessor_that_is_not_due_is_found",
            f"{_ORDER}::test_a_delayed_head_holds_its_key",
        ),
    ),
    Mutation(
        name="failed-head-is-overtaken",
        breaks="While a message waits to be tried again, the others of its key go on.",
        promise=_PROMISE,
        file="outbox_core/relay/completing/settlement.py",
        old="if row.message.meta.replays:",
        new="if True:",
        tests=(f"{_ORDER}::test_a_failing_head_holds_its_key_and_nobody_else",),
    ),
    Mutation(
        name="dead-head-does-not-block",
        breaks='`on_dead="block"` lets a key go on behind a dead message.',
        promise="Then its key waits for a person.",
        file=f"{_QUERIES}/first_predecessor.sql",
        old="AND $6::boolean",
        new="AND $6::boolean IS NULL",
        tests=(
            f"{_STORES}::test_dead_rows_count_when_they_hold_their_keys",
            "tests/integration/relay/test_failures.py::test_a_dead_head_lets_its_key_go_on_or_holds_it[block-1]",
        ),
    ),
    Mutation(
        name="followed-keys-not-looked-at",
        breaks="What comes before the messages of a claimed key is not reported.",
        promise=_PROMISE,
        file="outbox_core/stores/postgres/store.py",
        old="return leased(table, claim, found, searched=True)",
        new="return Leased.of(leased(table, claim, found, searched=False).rows(), {})",
        tests=(
            f"{_STORES}::test_claiming_keys_finds_predecessors_in_any_case",
            (
                "tests/integration/relay/test_locked_rows.py"
                "::test_nobody_overtakes_a_first_message_that_somebody_keeps_locked"
            ),
        ),
    ),
    Mutation(
        name="floors-not-lowered",
        breaks="Watermarks stay where they are when a message goes back.",
        promise=_PROMISE,
        file="outbox_core/relay/ordering/watermarks.py",
        old="if row.key_id is not None:\n                self._lowered",
        new="if False:\n                self._lowered",
        tests=(
            "tests/integration/relay/test_overtaking.py::test_nobody_overtakes[looks apart, from floors on-skip]",
            "tests/simulation/test_simulation.py::test_the_promises_hold_whatever_goes_wrong",
        ),
    ),
    Mutation(
        name="floors-above-open-transactions",
        breaks="Keys are not checked below sequences that an open transaction may still commit.",
        promise=_PROMISE,
        file="outbox_core/relay/ordering/watermarks.py",
        old="min(sequence, self._ceiling)",
        new="sequence",
        tests=("tests/simulation/test_simulation.py::test_the_promises_hold_whatever_goes_wrong",),
    ),
)

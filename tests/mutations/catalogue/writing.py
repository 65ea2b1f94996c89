"""Writing messages in the caller's transaction."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_CONTRACT: Final = "tests/contract/test_enqueue_postgres.py"

MUTATIONS: Final = (
    Mutation(
        name="enqueue-commits-by-itself",
        breaks="The message is committed as soon as it is written, whatever becomes of the caller's transaction.",
        promise="A message is published only if its transaction committed.",
        file="outbox_core/transactions/asyncpg.py",
        old="""        # Records are read by position, as the sequences they are; their type does not say so.
        return cast(
            "Coroutine[Any, Any, Sequence[Sequence[Any]]]", self._connection.fetch(statement, *parameters)
        )
""",
        new="""
        async def fetched() -> Sequence[Sequence[Any]]:
            rows = await self._connection.fetch(statement, *parameters)
            await self._connection.execute("COMMIT; BEGIN")
            return cast("Sequence[Sequence[Any]]", rows)

        return fetched()
""",
        tests=(f"{_CONTRACT}::TestWriting::test_a_rollback_leaves_nothing[asyncpg]",),
    ),
    Mutation(
        name="enqueue-without-transaction",
        breaks="A connection on which no transaction is open is taken.",
        promise="A message is published only if its transaction committed.",
        file="outbox_core/outbox.py",
        old="""        if not allow_autocommit and not await transaction.is_open():
            raise self._not_in_transaction()
        sequence =""",
        new="""        sequence =""",
        tests=(f"{_CONTRACT}::TestWriting::test_outside_a_transaction_is_refused[asyncpg]",),
    ),
    Mutation(
        name="conflict-ignored",
        breaks="Other content under an `event_id` that is already there passes for a repetition.",
        promise="Every committed message is published; what would be dropped is an error.",
        file="outbox_core/outbox.py",
        old="if row.digest != digests[row.event_id]:",
        new="if False:",
        tests=(
            f"{_CONTRACT}::TestIdempotence::test_other_content_is_a_conflict_that_tells_nothing[single-asyncpg]",
        ),
    ),
    Mutation(
        name="writers-not-serialised",
        breaks="`serialize_key=True` takes no lock.",
        promise="With it, sequences of a key are in the order of commits.",
        file="outbox_core/outbox.py",
        old="serialize = _keys(records) if serialize_key else ()",
        new="serialize: list[KeyId] = []",
        tests=(
            (
                f"{_CONTRACT}::TestConcurrency"
                "::test_serialized_writers_of_a_key_commit_in_sequence_order[single-asyncpg]"
            ),
        ),
    ),
)

"""Cleaning, dead letters and the life of the relay itself."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_QUERIES: Final = "outbox_core/stores/postgres/queries"

MUTATIONS: Final = (
    Mutation(
        name="cleaner-without-second-look",
        breaks="The cleaner deletes what it has seen, without a lock and without looking again.",
        promise="Nothing is deleted that was not published, unless you say so.",
        file=f"{_QUERIES}/clean_published.sql",
        old="""    LIMIT $5
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table}
    WHERE id = ANY (ARRAY(SELECT id FROM page)) AND published_at < now() - make_interval(secs => $4)
""",
        new="""    LIMIT $5
), deleted AS (
    DELETE FROM {table}
    WHERE id = ANY (ARRAY(SELECT id FROM page))
""",
        tests=(
            "tests/integration/test_cleaner.py::test_a_replay_that_commits_while_the_cleaner_is_at_work_wins",
        ),
    ),
    Mutation(
        name="cleaner-frees-blocked-keys",
        breaks="The cleaner deletes dead messages behind which others of their key are waiting.",
        promise='With `on_dead="block"` a key waits for a person.',
        file=f"{_QUERIES}/clean_dead.sql",
        old="WHERE waiting.sequence IS NULL OR waiting.sequence < page.sequence",
        new="",
        tests=("tests/integration/test_cleaner.py::test_a_dead_message_that_blocks_a_key_stays",),
    ),
    Mutation(
        name="replay-without-comparing",
        breaks="A replay changes rows that have moved on since it looked at them.",
        promise="A message is replayed once for each time that somebody asked for it.",
        file=f"{_QUERIES}/replay.sql",
        old="WHERE message.id = slots.id AND message.{moment} = slots.moment",
        new="WHERE message.id = slots.id",
        tests=(
            (
                "tests/integration/test_replay_together.py"
                "::test_a_message_that_moves_on_while_it_is_waited_for[replay]"
            ),
        ),
    ),
    Mutation(
        name="tasks-die-in-silence",
        breaks="An error in a task that dispatches ends that task and is not reported.",
        promise="A relay works, or it ends with an error.",
        file="outbox_core/relay/dispatching/pool.py",
        old="            self._shutdown.fail(error)",
        new="            return",
        tests=(
            (
                "tests/integration/relay/test_lifecycle.py"
                "::test_a_dead_dispatch_task_ends_the_relay_with_its_error"
            ),
        ),
    ),
)

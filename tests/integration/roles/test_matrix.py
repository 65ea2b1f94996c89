"""Who may do what, statement by statement; what may not be done is refused with SQLSTATE 42501 and nothing else."""

from __future__ import annotations

import asyncpg
import pytest

from tests.integration.roles.cast import PARTS, Cast

pytestmark = [pytest.mark.asyncio, pytest.mark.store]
ALL = frozenset(PARTS)
M, P, R, V, O = PARTS  # noqa: E741 - the initials of the parts
STATE = ("published_at", "attempts", "available_at", "last_error", "dead_at", "replays")
CONTENT = ("payload", "body", "headers")
FIXED = (
    "id",
    "tenant_id",
    "topic",
    "content_type",
    "event_id",
    "sequence",
    "created_at",
    "key",
    "digest",
    *CONTENT,
)
ENQUEUE = """
    INSERT INTO shop.orders_outbox (tenant_id, topic, event_id, digest, payload)
    VALUES (gen_random_uuid(), 'a.b.c.v1', gen_random_uuid(), decode(repeat('00', 32), 'hex'), '1')
"""
BEGIN_AUDIT = """
    INSERT INTO shop.orders_outbox_audit (id, action, actor, reason, filter, as_of, planned)
    VALUES (gen_random_uuid(), 'replay', 'me', 'x', '{}', now(), 1)
"""

PASSED_ON = ("SELECT", "INSERT", "UPDATE (last_error)", "DELETE", "ALL")
RIGHTS = """
    SELECT array_agg((attname, attacl::text, relacl::text) ORDER BY attnum)::text
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE attrelid = 'shop.orders_outbox'::regclass
"""


def each(statement: str, columns: tuple[str, ...], may: frozenset[str]) -> dict[str, frozenset[str]]:
    """The statement for each of these columns."""
    return {statement.replace("COLUMN", column): may for column in columns}


MATRIX: dict[str, frozenset[str]] = {
    # Messages
    ENQUEUE: frozenset({M, P}),
    "SELECT event_id, sequence, topic, tenant_id, digest FROM shop.orders_outbox": ALL,
    "SELECT attempts, last_error, dead_at, key FROM shop.orders_outbox": ALL - {P},
    **each("SELECT COLUMN FROM shop.orders_outbox", CONTENT, frozenset({M, R})),
    "SELECT FROM shop.orders_outbox FOR UPDATE": frozenset({M, R, O}),
    **each("UPDATE shop.orders_outbox SET COLUMN = COLUMN", STATE, frozenset({M, R, O})),
    "UPDATE shop.orders_outbox SET locked_at = NULL, lock_token = NULL": frozenset({M, R}),
    **each("UPDATE shop.orders_outbox SET COLUMN = COLUMN", FIXED, frozenset({M})),
    "DELETE FROM shop.orders_outbox": frozenset({M, R, O}),
    "TRUNCATE shop.orders_outbox": frozenset({M}),
    "SELECT nextval('shop.orders_outbox_sequence_seq')": frozenset({M, P}),
    "SELECT setval('shop.orders_outbox_sequence_seq', 1)": frozenset({M}),
    # The record of what operators did
    "SELECT * FROM shop.orders_outbox_audit": frozenset({M, V, O}),
    BEGIN_AUDIT: frozenset({M, O}),
    "UPDATE shop.orders_outbox_audit SET changed = changed": frozenset({M, O}),
    "UPDATE shop.orders_outbox_audit SET actor = 'somebody else'": frozenset({M}),
    "UPDATE shop.orders_outbox_audit SET reason = 'another'": frozenset({M}),
    "DELETE FROM shop.orders_outbox_audit": frozenset({M}),
    # Leadership and the version
    "SELECT * FROM shop.outbox_leader": ALL - {P},
    "UPDATE shop.outbox_leader SET holder = NULL, term = term, heartbeat_at = NULL": frozenset({M, R}),
    "UPDATE shop.outbox_leader SET table_name = table_name": frozenset({M}),
    "INSERT INTO shop.outbox_leader (table_name) VALUES ('x')": frozenset({M}),
    "DELETE FROM shop.outbox_leader": frozenset({M}),
    "SELECT * FROM shop.outbox_schema_version": ALL - {P},
    "UPDATE shop.outbox_schema_version SET version = version": frozenset({M}),
    # The schema
    "ALTER TABLE shop.orders_outbox ADD COLUMN more text": frozenset({M}),
    "CREATE INDEX ON shop.orders_outbox (topic)": frozenset({M}),
    "CREATE TRIGGER t BEFORE UPDATE ON shop.orders_outbox FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()": frozenset({M}),
    "ALTER TABLE shop.orders_outbox DISABLE TRIGGER ALL": frozenset({M}),
    "DROP TABLE shop.orders_outbox": frozenset({M}),
    "CREATE TABLE shop.mine (id int)": frozenset({M}),
    "CREATE FUNCTION shop.now() RETURNS int LANGUAGE sql AS 'SELECT 1'": frozenset({M}),
    # What is nobody's
    "CREATE ROLE another": frozenset(),
    "SELECT pg_read_file('/etc/passwd')": frozenset(),
    "SET ROLE postgres": frozenset(),
}


async def test_who_may_do_what(cast: Cast) -> None:
    async with cast.session(P) as producer:
        await producer.execute(ENQUEUE)
    async with cast.session(O) as operator:
        await operator.execute(BEGIN_AUDIT)
    wrong: list[str] = []
    for part in PARTS:
        async with cast.session(part) as session:
            for statement, may in MATRIX.items():
                state = await outcome(session, statement)
                # The owner is stopped by nothing but the rules of the data, which are another matter.
                allowed = state in (None, "23505", "42809", "23514") if part == M else state is None
                if allowed != (part in may) or (part not in may and state != "42501"):
                    wrong.append(f"{part}: {statement.strip()}: {state}")
    assert wrong == []


async def test_nobody_but_the_migrator_passes_rights_on(cast: Cast) -> None:
    """PostgreSQL may only warn of a grant of what one may not pass on: what counts is whether it was granted."""
    granted: set[str] = set()
    for part in PARTS:
        async with cast.session(part) as session:
            for right in PASSED_ON:
                transaction = session.transaction()
                await transaction.start()
                before = await session.fetchval(RIGHTS)
                refused = await outcome(session, f"GRANT {right} ON shop.orders_outbox TO PUBLIC", keep=True)
                assert refused in (None, "42501")
                if await session.fetchval(RIGHTS) != before:
                    granted.add(f"{part}: {right}")
                await transaction.rollback()
    assert granted == {f"{M}: {right}" for right in PASSED_ON}


async def test_no_role_sees_a_message_through_the_catalog_or_another_role(cast: Cast) -> None:
    async with cast.session(P) as producer:
        await producer.execute(ENQUEUE)
    for part in (P, V, O):
        async with cast.session(part) as session:
            for other in set(PARTS) - {part}:
                assert await outcome(session, f"SET ROLE {cast.role(other)}") == "42501"
            for column in CONTENT:
                assert (
                    await outcome(
                        session, "COPY shop.orders_outbox (COLUMN) TO STDOUT".replace("COLUMN", column)
                    )
                    == "42501"
                )
                assert (
                    await outcome(
                        session,
                        "SELECT * FROM shop.orders_outbox WHERE COLUMN IS NOT NULL".replace("COLUMN", column),
                    )
                    == "42501"
                )
                assert (
                    await outcome(
                        session, "DELETE FROM shop.orders_outbox RETURNING COLUMN".replace("COLUMN", column)
                    )
                    == "42501"
                )
                assert (
                    await outcome(
                        session,
                        "UPDATE shop.orders_outbox SET last_error = COLUMN::text".replace("COLUMN", column),
                    )
                    == "42501"
                )


async def outcome(session: asyncpg.Connection, statement: str, *, keep: bool = False) -> str | None:
    """The SQLSTATE with which a statement fails; None when it succeeds. It is undone, unless it is to be kept."""
    transaction = session.transaction()
    await transaction.start()
    try:
        await session.execute(statement)
    except asyncpg.PostgresError as error:
        await transaction.rollback()
        return error.sqlstate
    await (transaction.commit() if keep else transaction.rollback())
    return None

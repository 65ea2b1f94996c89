"""Each process of a run under a database role of its own, with no more than the grants that the library prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from outbox_core import schema
from tests.faults.plan import TABLE

MIGRATOR, WRITER, RELAY = "faults_migrator", "faults_writer", "faults_relay"
_BUSINESS = Path(__file__).with_name("business.sql")
_SEEN = "SELECT DISTINCT role FROM faults_trail UNION SELECT DISTINCT 'w ' || role FROM faults_ledger"
_MIGHTY = """
SELECT rolname FROM pg_roles
WHERE rolname LIKE 'faults%' AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication)
"""


def address(dsn: str, role: str) -> str:
    """The same database for somebody else."""
    url = urlsplit(dsn)
    return url._replace(netloc=f"{role}@{url.netloc.rpartition('@')[2]}").geturl()


async def create(dsn: str) -> None:
    """The migrator makes the outbox table and grants the others their part; the application's own tables come last."""
    admin: Any = await asyncpg.connect(dsn, timeout=10, command_timeout=60)
    try:
        for role in (MIGRATOR, WRITER, RELAY):
            await admin.execute(f"CREATE ROLE {role} LOGIN")
        await admin.execute(f"GRANT CREATE ON SCHEMA public TO {MIGRATOR}")
        await schema.upgrade(address(dsn, MIGRATOR), TABLE)
        migrator: Any = await asyncpg.connect(address(dsn, MIGRATOR), timeout=10, command_timeout=60)
        try:
            await migrator.execute(schema.roles(TABLE, producer=WRITER, relay=RELAY))
        finally:
            await migrator.close()
        await admin.execute(_BUSINESS.read_text())
    finally:
        await admin.close()


async def overreach(admin: Any) -> list[str]:
    """Who wrote as somebody else than it should, and which of the roles may do more than a user may."""
    wrong = [
        f"{row['role']} wrote"
        for row in await admin.fetch(_SEEN)
        if row["role"] not in (RELAY, f"w {WRITER}")
    ]
    return wrong + [f"{row['rolname']} is no plain role" for row in await admin.fetch(_MIGHTY)]

"""The relay's suites on whole processes, with every relay under the relay's role and every writer under the
producer's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.outbox import Outbox
from tests.integration.relay.journal import Journal
from tests.integration.relay.trial import TABLE, Trial
from tests.integration.roles.borrowing import borrowed
from tests.integration.roles.cast import Cast
from tests.services.postgres import Database

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]


@dataclass
class RoleTrial(Trial):
    """The migrator makes the tables and grants the others their part."""

    cast: Cast = field(kw_only=True)

    async def create(self, table: str) -> None:
        await schema.upgrade(self.cast.dsn("migrator"), table)
        async with self.cast.session("migrator") as migrator:
            roles = {part: self.cast.role(part) for part in ("producer", "relay")}
            await migrator.execute(schema.roles(table, **roles))
        self.outboxes[table] = Outbox(table)


@pytest_asyncio.fixture
async def trial(gathered: Cast, database: Database, tmp_path: Path) -> AsyncIterator[Trial]:
    cast = replace(gathered, admin=database.dsn)
    async with cast.session("admin") as admin, cast.session("producer") as writer:
        await admin.execute(f"GRANT CREATE ON SCHEMA public TO {cast.role('migrator')}")
        journal = Journal(tmp_path / "journal.jsonl")
        made = RoleTrial(cast.dsn("relay"), cast.admin, journal, admin, writer, cast=cast)
        await made.create(TABLE)
        yield made
        await leave(cast, admin)


async def leave(cast: Cast, admin: asyncpg.Connection) -> None:
    """The roles own nothing in this database any more: they are to be dropped while others have them, too."""
    for part in ("migrator", "producer", "relay"):
        await admin.execute(f"DROP OWNED BY {cast.role(part)} CASCADE")


globals().update(
    borrowed(
        "trial",
        "tests.integration.relay",
        "test_leadership",
        "test_leases",
        "test_order",
        but=(
            # They make a schema, or hide a table, of their own.
            "test_what_is_wrong_with_one_table_costs_no_other_its_leader",
            "test_who_cannot_lead_keeps_no_lock",
        ),
    )
)

"""Every part of a system under a role of its own, as the documentation says; a superuser makes the roles alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import asyncpg

from outbox_core import schema

TABLE = "shop.orders_outbox"
PARTS = ("migrator", "producer", "relay", "viewer", "operator")


@dataclass(frozen=True)
class Cast:
    """The address of the database for each part, and of the superuser, who only looks."""

    admin: str
    prefix: str

    def role(self, part: str) -> str:
        return f"{self.prefix}_{part}"

    def dsn(self, part: str) -> str:
        parts = urlsplit(self.admin)
        return parts._replace(netloc=f"{self.role(part)}@{parts.netloc.rpartition('@')[2]}").geturl()

    @asynccontextmanager
    async def session(self, part: str) -> AsyncIterator[asyncpg.Connection]:
        """A session of this part; of the superuser, when it is ``admin``."""
        connection = await asyncpg.connect(self.admin if part == "admin" else self.dsn(part))
        try:
            yield connection
        finally:
            await connection.close()


async def gather(cast: Cast) -> None:
    """Roles that may log in and no more; the migrator makes the table in its schema and grants the others theirs."""
    async with cast.session("admin") as admin:
        for part in PARTS:
            await admin.execute(f"CREATE ROLE {cast.role(part)} LOGIN")
        await admin.execute(f"CREATE SCHEMA shop AUTHORIZATION {cast.role('migrator')}")
    await schema.upgrade(cast.dsn("migrator"), TABLE)
    async with cast.session("migrator") as migrator:
        others = {part: cast.role(part) for part in PARTS if part != "migrator"}
        await migrator.execute(schema.roles(TABLE, **others))


async def empty(cast: Cast) -> None:
    """As it was when it was made."""
    async with cast.session("admin") as admin:
        await admin.execute(
            "TRUNCATE shop.orders_outbox, shop.orders_outbox_audit RESTART IDENTITY;"
            " UPDATE shop.outbox_leader SET holder = NULL, heartbeat_at = NULL"
        )


async def dismiss(cast: Cast) -> None:
    async with cast.session("admin") as admin:
        for part in PARTS:
            await admin.execute(f"DROP OWNED BY {cast.role(part)} CASCADE; DROP ROLE {cast.role(part)}")

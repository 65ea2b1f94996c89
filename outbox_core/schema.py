"""The outbox table in PostgreSQL and its tools: create, verify, upgrade, print and grant.

    async with pool.acquire() as connection:
        await schema.upgrade(connection, "billing.orders_outbox")
        (await schema.verify(connection, "billing.orders_outbox")).raise_if_different()

``script`` prints the same SQL for Alembic, Atlas, goose or psql, ``roles`` the grants. The schema version of each table
is recorded in the database; this library needs `CURRENT_VERSION` and works on the one after it too.

The same tools of another store are ``outbox_core.stores.for_url(url).schema``.
"""

from outbox_core.schema_tools import Difference, Report
from outbox_core.stores.postgres.schema import (
    CURRENT_VERSION,
    Migration,
    create,
    downgrade,
    migrations,
    require,
    roles,
    script,
    upgrade,
    verify,
    version,
)

__all__ = [
    "CURRENT_VERSION",
    "Difference",
    "Migration",
    "Report",
    "create",
    "downgrade",
    "migrations",
    "require",
    "roles",
    "script",
    "upgrade",
    "verify",
    "version",
]

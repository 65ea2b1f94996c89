"""The outbox table and its tools: create, verify, upgrade, print and grant.

    async with pool.acquire() as connection:
        await schema.upgrade(connection, "billing.orders_outbox")
        (await schema.verify(connection, "billing.orders_outbox")).raise_if_different()

``script`` prints the same SQL for Alembic, Atlas, goose or psql, ``roles`` the grants. The schema version of each table
is recorded in the database; this library needs `CURRENT_VERSION` and works on the one after it too.
"""

from outbox_core.schema_tools import Difference, Report
from outbox_core.stores.postgres.schema.installation import create, downgrade, upgrade
from outbox_core.stores.postgres.schema.migration import CURRENT_VERSION, Migration, migrations, script
from outbox_core.stores.postgres.schema.privileges import roles
from outbox_core.stores.postgres.schema.verification import require, verify, version

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

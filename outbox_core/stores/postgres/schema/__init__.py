"""PostgreSQL's schema tools: create, verify, upgrade, print and grant. This module is a
`SchemaTools` (`outbox_core.schema_tools`) as it stands."""

from outbox_core.stores.postgres.schema.installation import create, downgrade, upgrade
from outbox_core.stores.postgres.schema.migration import CURRENT_VERSION, Migration, migrations, script
from outbox_core.stores.postgres.schema.privileges import roles
from outbox_core.stores.postgres.schema.verification import require, verify, version

__all__ = [
    "CURRENT_VERSION",
    "Migration",
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

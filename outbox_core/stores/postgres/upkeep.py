"""The former import path of `PostgresAdminStore`."""

from outbox_core.stores.postgres.admin_store import PostgresAdminStore as PostgresUpkeep

__all__ = ["PostgresUpkeep"]

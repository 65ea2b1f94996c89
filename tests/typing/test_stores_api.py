"""The types of what a store's backend gives."""

from __future__ import annotations

from typing import assert_type

from outbox_core import stores
from outbox_core.admin_store import AdminStore
from outbox_core.schema_tools import Report, SchemaTools
from outbox_core.store_backend import Session, StoreBackend


async def administer(url: str) -> Report:
    backend = stores.for_url(url)
    assert_type(backend, StoreBackend)
    assert_type(backend.schema, SchemaTools)
    assert_type(backend.flaw(), str | None)
    async with backend.admin_store("orders_outbox") as admin_store:
        assert_type(admin_store, AdminStore)
    async with backend.session(name="tool", timeout=5.0) as session:
        assert_type(session, Session)
        return await backend.schema.verify(session, "orders_outbox")

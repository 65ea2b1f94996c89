"""The contract of stores, whose every statement the relay's role must be enough for."""

from __future__ import annotations

import pytest
import pytest_asyncio

from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.testing.contracts.store import StoreContract
from tests.contract.test_stores import TAKEOVER, PostgresDatabase
from tests.integration.roles.cast import Cast

pytestmark = [pytest.mark.asyncio, pytest.mark.store]


class RoleDatabase(PostgresDatabase):
    """The store under the relay's role; the superuser looks on."""

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast.admin)
        self._relay = cast.dsn("relay")

    def make(self) -> PostgresStore:
        return PostgresStore(self._relay, takeover=TAKEOVER)


class TestStores(StoreContract):
    @pytest_asyncio.fixture
    async def database(self, cast: Cast) -> RoleDatabase:
        return RoleDatabase(cast)

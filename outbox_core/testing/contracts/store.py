"""The suite every store passes.

    @pytest.mark.asyncio
    class TestSqlite(StoreContract):
        @pytest.fixture
        def database(self) -> Database:
            return SqliteDatabase(...)

`Database` says what to provide, and the store's `capabilities` pick what is tested. A store that has an ``admin_store``
passes `AdminStoreContract` as well.
"""

from __future__ import annotations

from outbox_core.testing.contracts.storing.admin_store import AdminStoreContract
from outbox_core.testing.contracts.storing.claims import ClaimContract
from outbox_core.testing.contracts.storing.database import Database
from outbox_core.testing.contracts.storing.keys import KeyContract
from outbox_core.testing.contracts.storing.leadership import LeadershipContract
from outbox_core.testing.contracts.storing.leases import LeaseContract
from outbox_core.testing.contracts.storing.lost_answers import LostAnswerContract
from outbox_core.testing.contracts.storing.sessions import SessionContract

__all__ = ["AdminStoreContract", "Database", "StoreContract", "UpkeepContract"]

UpkeepContract = AdminStoreContract
"""The former name of `AdminStoreContract`."""


class StoreContract(
    ClaimContract, LeaseContract, LostAnswerContract, KeyContract, LeadershipContract, SessionContract
):
    """Everything a relay relies on."""

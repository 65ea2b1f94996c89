"""A short way to say what was found about a table."""

from __future__ import annotations

from typing import Any

import asyncpg

from outbox_core.config import Settings
from outbox_core.doctor import Finding, Severity, diagnose

TABLE = "shop.orders_outbox"


class Ward:
    """A healthy table in a database of the test's own."""

    def __init__(self, dsn: str, connection: asyncpg.Connection) -> None:
        self.dsn = dsn
        self.connection = connection

    async def diagnose(self, **arguments: Any) -> list[Finding]:
        given: dict[str, Any] = {
            "settings": Settings(),
            "database_url": self.dsn,
            "tables": [TABLE],
            **arguments,
        }
        return await diagnose(given.pop("settings"), **given)

    async def findings(self, check: str, **arguments: Any) -> list[Finding]:
        """What one check found that is not as it should be."""
        return [
            finding
            for finding in await self.diagnose(**arguments)
            if finding.check == check and finding.severity is not Severity.OK
        ]

    async def only(self, check: str, **arguments: Any) -> Finding:
        (finding,) = await self.findings(check, **arguments)
        assert finding.why
        assert finding.run
        return finding

"""What is being examined, as every check gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncpg import Connection

    from outbox_core.config import Settings
    from outbox_core.finding import Limits
    from outbox_core.table import TableName


@dataclass(frozen=True, slots=True)
class Case:
    """An open session, the settings, and what counts as normal."""

    connection: Connection
    settings: Settings
    limits: Limits


@dataclass(frozen=True, slots=True)
class TableCase(Case):
    """A case for one table, which exists."""

    table: TableName

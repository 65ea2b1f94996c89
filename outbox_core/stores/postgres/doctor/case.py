"""The session and the settings that every check gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncpg import Connection

    from outbox_core.store_checks import CheckOptions
    from outbox_core.table import TableName


@dataclass(frozen=True, slots=True)
class Case:
    """An open session, and the settings a check depends on, among them what counts as normal."""

    connection: Connection
    options: CheckOptions


@dataclass(frozen=True, slots=True)
class TableCase(Case):
    """A case for one table, which exists."""

    table: TableName

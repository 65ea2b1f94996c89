"""Transactional outbox for asyncio services on PostgreSQL."""

from outbox_core.errors import OutboxError
from outbox_core.table import TableName

__all__ = ["OutboxError", "TableName"]

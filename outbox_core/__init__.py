"""Transactional outbox for asyncio services on PostgreSQL."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from outbox_core.dispatcher import Dispatcher
from outbox_core.errors import BrokerUnavailable, OutboxError, PermanentError, RetryAfter
from outbox_core.message import DispatchedMessage, Message, Meta
from outbox_core.outbox import Outbox
from outbox_core.record import State, StoredMessage
from outbox_core.relay import Relay
from outbox_core.table import TableName
from outbox_core.topic import Topic

__all__ = [
    "BrokerUnavailable",
    "DispatchedMessage",
    "Dispatcher",
    "Message",
    "Meta",
    "Outbox",
    "OutboxError",
    "PermanentError",
    "Relay",
    "RetryAfter",
    "State",
    "StoredMessage",
    "TableName",
    "Topic",
]

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Errors name `outbox_core.schema.create(…)`: it works after `import outbox_core` alone, and costs its import
        # only then.
        if name == "schema":
            return _import_module("outbox_core.schema")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

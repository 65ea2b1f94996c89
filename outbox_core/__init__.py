"""Transactional outbox for asyncio services on PostgreSQL."""

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

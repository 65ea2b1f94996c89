"""Writing in a transaction, and the leases messages are taken under."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from outbox_core.errors.root import OutboxError

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_core.table import TableName


class TransactionError(OutboxError):
    """Raised when a message cannot be written in, or taken from, a transaction."""

    code: ClassVar[str] = "TX.ERROR"


class DispatchInterrupted(TransactionError):
    """Raised when a dispatch was cut off because the relay stopped: whether it was delivered is not known."""

    code: ClassVar[str] = "TX.INTERRUPTED"


class DispatchTimeout(TransactionError):
    """Raised when a dispatch was not acknowledged in time: whether it was delivered is not known."""

    code: ClassVar[str] = "TX.TIMEOUT"


class EventIdConflict(TransactionError):
    """Raised when an ``event_id`` is already taken by a message with other content.

    Says nothing about that message: it may be another tenant's.
    """

    code: ClassVar[str] = "TX.EVENT_ID_CONFLICT"

    def __init__(self, event_id: UUID, table: TableName) -> None:
        super().__init__(
            f"event_id {event_id} is already in {table} with another topic, tenant, key, content type or payload;"
            " give a new message a new event_id, and repeat an old one unchanged"
        )
        self.event_id = event_id
        self.table = table


class LeaseExhausted(TransactionError):
    """Raised for a message that has no attempt left when it is claimed: its last one ended without an outcome, for its
    owner crashed or froze, or fewer are allowed now than it has had."""

    code: ClassVar[str] = "TX.DEADLETTER"


class NotInTransaction(TransactionError):
    """Raised when a message would be written outside a transaction, apart from the data it belongs to."""

    code: ClassVar[str] = "TX.NOT_IN_TRANSACTION"


class UnsupportedTransaction(TransactionError, TypeError):
    """Raised when an object is none of the connections and sessions that messages can be written on."""

    code: ClassVar[str] = "TX.UNSUPPORTED"

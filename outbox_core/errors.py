"""Every error this library raises, in one tree.

    OutboxError                          UNKNOWN.ERROR
    ├── ConfigError                      CONFIG.INVALID
    │   ├── InvalidTableName             CONFIG.TABLE_NAME
    │   ├── InvalidUrl                   CONFIG.URL
    │   ├── InvalidTopicPattern          CONFIG.TOPIC_PATTERN
    │   ├── MissingExtra                 CONFIG.MISSING_EXTRA        (also an ImportError)
    │   ├── PlanMismatch                 CONFIG.PLAN_MISMATCH
    │   ├── RetentionZero                CONFIG.RETENTION_ZERO
    │   └── UnboundedFilter              CONFIG.UNBOUNDED_FILTER
    ├── MessageError                     MESSAGE.INVALID             (also a ValueError, as all below it)
    │   ├── InvalidTopic                 MESSAGE.TOPIC
    │   ├── InvalidHeader                MESSAGE.HEADER
    │   ├── InvalidKey                   MESSAGE.KEY
    │   ├── EncodingError                MESSAGE.ENCODING
    │   └── MessageTooLarge              MESSAGE.TOO_LARGE
    ├── EventBusError                    EVENTBUS.ERROR
    │   ├── HandlerCancelled             EVENTBUS.HANDLER_CANCELLED
    │   ├── HandlerTimeout               EVENTBUS.HANDLER_TIMEOUT
    │   ├── InvalidHandlerReturn         EVENTBUS.INVALID_HANDLER_RETURN   (also a PermanentError)
    │   ├── NoSubscribers                EVENTBUS.NO_SUBSCRIBERS
    │   └── PayloadMismatch              EVENTBUS.PAYLOAD_MISMATCH         (also a PermanentError)
    ├── RelayFailed                      UNKNOWN.RELAY_FAILED
    ├── TransactionError                 TX.ERROR
    │   ├── DispatchInterrupted          TX.INTERRUPTED
    │   ├── DispatchTimeout              TX.TIMEOUT
    │   ├── EventIdConflict              TX.EVENT_ID_CONFLICT
    │   ├── LeaseExhausted               TX.DEADLETTER
    │   ├── NotInTransaction             TX.NOT_IN_TRANSACTION
    │   └── UnsupportedTransaction       TX.UNSUPPORTED              (also a TypeError)
    ├── StorageError                     STORAGE.ERROR
    │   ├── PermissionDenied             STORAGE.PERMISSION
    │   ├── StorageTimeout               STORAGE.TIMEOUT
    │   ├── StorageUnavailable           STORAGE.UNAVAILABLE
    │   └── SchemaError                  STORAGE.SCHEMA
    │       ├── SchemaBusy               STORAGE.SCHEMA_BUSY
    │       ├── SchemaMismatch           STORAGE.SCHEMA_MISMATCH
    │       ├── SchemaMissing            STORAGE.SCHEMA_MISSING
    │       ├── SchemaNotEmpty           STORAGE.SCHEMA_NOT_EMPTY
    │       ├── SchemaTooNew             STORAGE.SCHEMA_TOO_NEW
    │       └── SchemaTooOld             STORAGE.SCHEMA_TOO_OLD
    └── ProviderError                    PROVIDER.ERROR
        ├── BrokerUnavailable            PROVIDER.UNAVAILABLE
        │   └── BrokerRefused            PROVIDER.REFUSED
        ├── InvalidDispatcherReturn      PROVIDER.INVALID_RETURN
        ├── NoRoute                      PROVIDER.NO_ROUTE
        ├── NotAnOutboxMessage           PROVIDER.NOT_AN_OUTBOX_MESSAGE
        ├── PermanentError               PROVIDER.PERMANENT
        │   └── AllPermanent             PROVIDER.ALL_PERMANENT      (also an ExceptionGroup)
        └── RetryAfter                   PROVIDER.RETRY_AFTER

Each class has a stable ``code`` whose first part is its family. Codes are what dead letters are grouped by, so a code
is never renamed or reused; `docs/reference/errors.md` gives the cause and the cure of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_core.table import TableName


class OutboxError(Exception):
    """The root of the tree: ``except OutboxError`` catches everything this library raises on purpose."""

    code: ClassVar[str] = "UNKNOWN.ERROR"


class ConfigError(OutboxError):
    """Raised when a setting, a name or an installation is wrong before any work begins."""

    code: ClassVar[str] = "CONFIG.INVALID"


class InvalidTableName(ConfigError, ValueError):
    """Raised when a table name breaks the rules of `TableName`.

    ``value`` is what was given and ``rule`` what it broke.
    """

    code: ClassVar[str] = "CONFIG.TABLE_NAME"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"invalid table name {_shown(value)}: {rule}")
        self.value = value
        self.rule = rule


class InvalidUrl(ConfigError, ValueError):
    """Raised when a dispatcher URL cannot be read, or asks for something its adapter does not know.

    ``scheme`` is the URL's own when it could be read (otherwise empty) and ``rule`` what was broken. The rest of the
    URL is in neither the message nor an attribute, because a mistyped URL shows its password in unexpected places.
    """

    code: ClassVar[str] = "CONFIG.URL"

    def __init__(self, scheme: str, rule: str) -> None:
        shown = f" {scheme}://…" if scheme else ""
        super().__init__(f"invalid dispatcher URL{shown}: {rule}")
        self.scheme = scheme
        self.rule = rule


class InvalidTopicPattern(ConfigError, ValueError):
    """Raised when a topic pattern breaks the rules of `TopicPattern`.

    ``value`` is what was given and ``rule`` what it broke.
    """

    code: ClassVar[str] = "CONFIG.TOPIC_PATTERN"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"{_invalid('topic pattern', value)}: {rule}")
        self.value = value
        self.rule = rule


class MissingExtra(ConfigError, ImportError):
    """Raised when something needs a package that comes with an extra which is not installed.

    ``extra`` is the extra's name and ``command`` installs it.
    """

    code: ClassVar[str] = "CONFIG.MISSING_EXTRA"

    def __init__(self, feature: str, package: str, extra: str, command: str) -> None:
        super().__init__(
            f"{feature} needs the package {package!r}, which is not installed. Install it with: {command}",
            name=package,
        )
        self.extra = extra
        self.command = command


class PlanMismatch(ConfigError):
    """Raised when a plan is given to another table than it was made for, or for another action than it was begun with.

    Nothing has been changed.
    """

    code: ClassVar[str] = "CONFIG.PLAN_MISMATCH"


class RetentionZero(ConfigError, ValueError):
    """Raised when a cleaner is told to keep messages for no time at all."""

    code: ClassVar[str] = "CONFIG.RETENTION_ZERO"

    def __init__(self, setting: str, value: float) -> None:
        hint = (
            'to keep no published message, let the relay delete them: on_published="delete"'
            if setting == "retention"
            else "to keep dead messages for ever, which is the default, set it to None"
        )
        super().__init__(f"{setting} must be greater than 0 seconds, got {value!r}; {hint}")
        self.setting = setting


class UnboundedFilter(ConfigError, ValueError):
    """Raised when messages would be changed by a filter without a single condition."""

    code: ClassVar[str] = "CONFIG.UNBOUNDED_FILTER"

    def __init__(self) -> None:
        super().__init__(
            "the filter has no condition, so every message would be changed; give a topic, tenant_id, since, until,"
            " code or event_ids, or insist with everything=True"
        )


class MessageError(OutboxError, ValueError):
    """Raised when a message is not one the library can store and a broker can carry; nothing has been written.

    The text names the field and the rule. It never holds a payload, a body or a header's value.
    """

    code: ClassVar[str] = "MESSAGE.INVALID"


class InvalidTopic(MessageError):
    """Raised when a topic breaks the rules of `check_topic`, or the four-part shape of `Topic` where that is asked for.

    ``value`` is what was given and ``rule`` what it broke.
    """

    code: ClassVar[str] = "MESSAGE.TOPIC"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"{_invalid('topic', value)}: {rule}")
        self.value = value
        self.rule = rule


class InvalidHeader(MessageError):
    """Raised when a user header could not travel unchanged, or would change what a broker does.

    ``name`` is the header's name, or None when the headers as a whole are at fault.
    """

    code: ClassVar[str] = "MESSAGE.HEADER"

    def __init__(self, name: object, rule: str) -> None:
        super().__init__(
            f"invalid headers: {rule}" if name is None else f"invalid header {_shown(name)}: {rule}"
        )
        self.name = name
        self.rule = rule


class InvalidKey(MessageError):
    """Raised when an ordering key cannot be indexed or could not travel as a header unchanged."""

    code: ClassVar[str] = "MESSAGE.KEY"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"{_invalid('key', value)}: {rule}")
        self.value = value
        self.rule = rule


class EncodingError(MessageError):
    """Raised when a payload cannot become JSON that PostgreSQL stores.

    ``path`` is where in the payload, such as ``payload.items[3].price``, and ``rule`` what is wrong there. The value
    itself is in neither.
    """

    code: ClassVar[str] = "MESSAGE.ENCODING"

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"cannot encode {_shortened(path)}: {rule}")
        self.path = path
        self.rule = rule


class MessageTooLarge(MessageError):
    """Raised when the encoded payload and headers are over the limit. ``size`` and ``limit`` are in bytes."""

    code: ClassVar[str] = "MESSAGE.TOO_LARGE"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the message has {size} bytes of encoded payload and headers and at most {limit} are allowed;"
            " store the large part elsewhere and send a reference to it, or raise the limit if the broker's is higher"
        )
        self.size = size
        self.limit = limit


class EventBusError(OutboxError):
    """Raised when an event bus cannot give a message to its handlers, or they do not behave as handlers."""

    code: ClassVar[str] = "EVENTBUS.ERROR"


class HandlerCancelled(EventBusError):
    """Raised when a handler ended by a cancellation that nobody asked of it: what it did is not known."""

    code: ClassVar[str] = "EVENTBUS.HANDLER_CANCELLED"

    def __init__(self, handler: str) -> None:
        super().__init__(
            f"the handler {handler} was cancelled from inside, perhaps by awaiting a task that was cancelled"
        )
        self.handler = handler


class HandlerTimeout(EventBusError):
    """Raised when a handler took longer than its timeout. ``seconds`` is that timeout."""

    code: ClassVar[str] = "EVENTBUS.HANDLER_TIMEOUT"

    def __init__(self, handler: str, seconds: float) -> None:
        super().__init__(
            f"the handler {handler} did not end within {seconds:g} s; whether it did its work is not known"
        )
        self.handler = handler
        self.seconds = seconds


class NoSubscribers(EventBusError):
    """Raised when nobody listens to a topic, because silence would lose the message; it is retried."""

    code: ClassVar[str] = "EVENTBUS.NO_SUBSCRIBERS"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"no handler is subscribed to the topic {topic!r}; subscribe one before the relay starts"
        )
        self.topic = topic


class RelayFailed(OutboxError):
    """Raised when a relay in the background ended by an error; that error is its ``__cause__``."""

    code: ClassVar[str] = "UNKNOWN.RELAY_FAILED"


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
    """Raised for a message whose last allowed attempt ended without an outcome: its owner crashed or froze."""

    code: ClassVar[str] = "TX.DEADLETTER"


class NotInTransaction(TransactionError):
    """Raised when a message would be written outside a transaction, apart from the data it belongs to."""

    code: ClassVar[str] = "TX.NOT_IN_TRANSACTION"


class UnsupportedTransaction(TransactionError, TypeError):
    """Raised when an object is none of the connections and sessions that messages can be written on."""

    code: ClassVar[str] = "TX.UNSUPPORTED"


class StorageError(OutboxError):
    """Raised when the database refuses or fails what the library asked of it."""

    code: ClassVar[str] = "STORAGE.ERROR"


class PermissionDenied(StorageError):
    """Raised when the database role may not do what was asked; ``schema.roles`` prints the grants each role needs."""

    code: ClassVar[str] = "STORAGE.PERMISSION"

    def __init__(self, table: TableName, action: str) -> None:
        super().__init__(
            f"the database role may not {action} {table}; grant it what its part needs:"
            f" outbox_core.schema.roles({str(table)!r}, ...) prints the statements"
        )
        self.table = table


class StorageTimeout(StorageError):
    """Raised when the database did not answer in time: whether the statement took effect is not known."""

    code: ClassVar[str] = "STORAGE.TIMEOUT"


class StorageUnavailable(StorageError):
    """Raised when the database cannot be reached, or says that it cannot serve now."""

    code: ClassVar[str] = "STORAGE.UNAVAILABLE"


class SchemaError(StorageError):
    """Raised when a table's schema cannot be worked with or changed. ``table`` is its name."""

    code: ClassVar[str] = "STORAGE.SCHEMA"

    def __init__(self, table: TableName, problem: str) -> None:
        super().__init__(f"{table}: {problem}")
        self.table = table


class SchemaBusy(SchemaError):
    """Raised when a lock that a schema change needs was not had in time. Nothing is half done; run it again."""

    code: ClassVar[str] = "STORAGE.SCHEMA_BUSY"


class SchemaMismatch(SchemaError):
    """Raised when a table is not as the library needs it. ``differences`` has a readable text for each difference.

    There are none when the table is no outbox at all, and so nothing to be mended.
    """

    code: ClassVar[str] = "STORAGE.SCHEMA_MISMATCH"

    def __init__(self, table: TableName, differences: tuple[str, ...]) -> None:
        listed = "\n".join(differences)
        problem = f"{len(differences)} differences from what is expected\n{listed}"
        super().__init__(
            table,
            problem if differences else "it exists and is not an outbox table; choose another name",
        )
        self.differences = differences


class SchemaMissing(SchemaError):
    """Raised when there is no such outbox table. ``command`` is the call that creates it."""

    code: ClassVar[str] = "STORAGE.SCHEMA_MISSING"

    def __init__(self, table: TableName) -> None:
        self.command = f"await outbox_core.schema.create(connection, {str(table)!r})"
        super().__init__(
            table,
            f"there is no such table in this database. Create it with `{self.command}`",
        )


class SchemaNotEmpty(SchemaError):
    """Raised instead of dropping a table that holds messages."""

    code: ClassVar[str] = "STORAGE.SCHEMA_NOT_EMPTY"

    def __init__(self, table: TableName) -> None:
        super().__init__(
            table,
            "going to version 0 drops the table, and it holds messages; pass drop_messages=True to lose them",
        )


class SchemaTooNew(SchemaError):
    """Raised when a table's schema is more than one version ahead of this library."""

    code: ClassVar[str] = "STORAGE.SCHEMA_TOO_NEW"

    def __init__(self, table: TableName, version: int, newest: int) -> None:
        super().__init__(
            table,
            f"schema version {version} is newer than version {newest}, the newest this library works with;"
            " upgrade outbox-core",
        )
        self.version = version


class SchemaTooOld(SchemaError):
    """Raised when a table's schema is older than this library needs. ``command`` is the call that upgrades it."""

    code: ClassVar[str] = "STORAGE.SCHEMA_TOO_OLD"

    def __init__(self, table: TableName, version: int, needed: int) -> None:
        self.command = f"await outbox_core.schema.upgrade(connection, {str(table)!r})"
        super().__init__(
            table,
            f"schema version {version} is older than version {needed}, which this library needs. Upgrade it with"
            f" `{self.command}`",
        )
        self.version = version


class ProviderError(OutboxError):
    """Raised when a broker, or the client library that speaks to it, fails."""

    code: ClassVar[str] = "PROVIDER.ERROR"


class BrokerUnavailable(ProviderError):
    """Raised by a dispatcher when its broker, not the message, is at fault: the attempt is not charged."""

    code: ClassVar[str] = "PROVIDER.UNAVAILABLE"


class BrokerRefused(BrokerUnavailable):
    """Raised by a dispatcher whose broker refuses its login, its certificate or its protocol: waiting does not help.

    Messages wait all the same, and are not charged for it, until somebody mends the credentials.
    """

    code: ClassVar[str] = "PROVIDER.REFUSED"


class InvalidDispatcherReturn(ProviderError):
    """Raised when a dispatcher returns something instead of None: a false success must not pass for a true one."""

    code: ClassVar[str] = "PROVIDER.INVALID_RETURN"

    def __init__(self, dispatcher: str, returned: object) -> None:
        super().__init__(
            f"the dispatcher {dispatcher} returned a {type(returned).__name__}; it must return None once the"
            " destination has acknowledged the message, and raise otherwise"
        )


class PermanentError(ProviderError):
    """Raised by a dispatcher when no retry can help: the message is dead at once."""

    code: ClassVar[str] = "PROVIDER.PERMANENT"


class AllPermanent(ExceptionGroup[Exception], PermanentError):
    """Raised when several handlers or targets failed with one message, and no retry can help any of them.

    A group like any other: ``exceptions`` has them all, and ``except*`` tells them apart.
    """

    code: ClassVar[str] = "PROVIDER.ALL_PERMANENT"


class NoRoute(ProviderError):
    """Raised by a `Router` for a topic that no route matches, when it has no default.

    The message is retried: the mistake is in the configuration, and the next deployment may mend it. ``topic`` is the
    message's.
    """

    code: ClassVar[str] = "PROVIDER.NO_ROUTE"

    def __init__(self, topic: str, patterns: Sequence[str]) -> None:
        known = ", ".join(map(repr, patterns[:20])) or "none"
        super().__init__(
            f"no route matches the topic {topic!r}; the routes are {known}. Add one for it, or a default"
        )
        self.topic = topic


class RetryAfter(ProviderError):
    """Raised by a dispatcher to choose when a message is tried again, 24 hours later at most; it counts an attempt."""

    code: ClassVar[str] = "PROVIDER.RETRY_AFTER"

    def __init__(
        self, delay: timedelta | float, reason: str = "the destination asked for a later retry"
    ) -> None:
        super().__init__(reason)
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)


class InvalidHandlerReturn(EventBusError, PermanentError):
    """Raised when a handler returns something other than None; a retry would repeat whatever it did."""

    code: ClassVar[str] = "EVENTBUS.INVALID_HANDLER_RETURN"

    def __init__(self, handler: str, returned: object) -> None:
        super().__init__(
            f"the handler {handler} returned a {type(returned).__name__}; it must return None when it is done, and"
            " raise otherwise"
        )
        self.handler = handler


class PayloadMismatch(EventBusError, PermanentError):
    """Raised when a payload does not fit the type that a handler takes.

    ``path`` is where, such as ``payload.items[3]``, and ``rule`` what is wrong there. The value itself is in neither.
    """

    code: ClassVar[str] = "EVENTBUS.PAYLOAD_MISMATCH"

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{_shortened(path)} {rule}")
        self.path = path
        self.rule = rule


class NotAnOutboxMessage(ProviderError, ValueError):
    """Raised when a record taken from a broker was not sent by this library, or lost its headers on the way."""

    code: ClassVar[str] = "PROVIDER.NOT_AN_OUTBOX_MESSAGE"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the record does not have the headers of an outbox message: {reason};"
            " it may come from another producer on the same destination"
        )
        self.reason = reason


_SHOWN_CHARACTERS = 80


def _shown(value: object) -> str:
    """The value as a person can read it in a message: quoted, escaped and never longer than a line."""
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]!r}… ({len(value)} characters)"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"


def _invalid(what: str, value: object) -> str:
    """What is invalid, with its text; of a value of another type the rule names the type, and that is enough."""
    return f"invalid {what} {_shown(value)}" if isinstance(value, str) else f"invalid {what}"


def _shortened(path: str) -> str:
    """A path with its middle left out when it is long: where it begins and where it ends are what helps."""
    return (
        path
        if len(path) <= 2 * _SHOWN_CHARACTERS
        else f"{path[:_SHOWN_CHARACTERS]}…{path[-_SHOWN_CHARACTERS:]}"
    )

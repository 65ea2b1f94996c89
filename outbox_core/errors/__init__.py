"""Every error this library raises, in one tree.

    OutboxError                          UNKNOWN.ERROR
    ├── ConfigError                      CONFIG.INVALID
    │   ├── EmbeddedServerError          CONFIG.EMBEDDED_SERVER
    │   ├── InvalidTableName             CONFIG.TABLE_NAME
    │   ├── InvalidSettings              CONFIG.SETTINGS
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
    │   ├── ContentUnreadable            STORAGE.UNREADABLE
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
        │   ├── BrokerRefused            PROVIDER.REFUSED
        │   └── BrokerExhausted          PROVIDER.EXHAUSTED
        ├── InvalidDispatcherReturn      PROVIDER.INVALID_RETURN
        ├── NoRoute                      PROVIDER.NO_ROUTE
        ├── NotAnOutboxMessage           PROVIDER.NOT_AN_OUTBOX_MESSAGE
        ├── PermanentError               PROVIDER.PERMANENT
        │   └── AllPermanent             PROVIDER.ALL_PERMANENT      (also an ExceptionGroup)
        ├── RetryAfter                   PROVIDER.RETRY_AFTER
        └── UnsupportedRecord            PROVIDER.UNSUPPORTED_RECORD (also a TypeError)

Each class has a stable ``code`` whose first part is its family. Codes are what dead letters are grouped by, so a code
is never renamed or reused; `docs/reference/errors.md` gives the cause and the cure of each.
"""

from outbox_core.errors.configuration import (
    ConfigError,
    EmbeddedServerError,
    InvalidSettings,
    InvalidTableName,
    InvalidTopicPattern,
    InvalidUrl,
    MissingExtra,
    PlanMismatch,
    RetentionZero,
    UnboundedFilter,
)
from outbox_core.errors.event_bus import (
    EventBusError,
    HandlerCancelled,
    HandlerTimeout,
    InvalidHandlerReturn,
    NoSubscribers,
    PayloadMismatch,
)
from outbox_core.errors.messages import (
    EncodingError,
    InvalidHeader,
    InvalidKey,
    InvalidTopic,
    MessageError,
    MessageTooLarge,
)
from outbox_core.errors.providers import (
    AllPermanent,
    BrokerExhausted,
    BrokerRefused,
    BrokerUnavailable,
    InvalidDispatcherReturn,
    NoRoute,
    NotAnOutboxMessage,
    PermanentError,
    ProviderError,
    RetryAfter,
    UnsupportedRecord,
)
from outbox_core.errors.root import OutboxError, RelayFailed
from outbox_core.errors.storage import (
    ContentUnreadable,
    PermissionDenied,
    SchemaBusy,
    SchemaError,
    SchemaMismatch,
    SchemaMissing,
    SchemaNotEmpty,
    SchemaTooNew,
    SchemaTooOld,
    StorageError,
    StorageTimeout,
    StorageUnavailable,
)
from outbox_core.errors.transactions import (
    DispatchInterrupted,
    DispatchTimeout,
    EventIdConflict,
    LeaseExhausted,
    NotInTransaction,
    TransactionError,
    UnsupportedTransaction,
)

__all__ = [
    "AllPermanent",
    "BrokerExhausted",
    "BrokerRefused",
    "BrokerUnavailable",
    "ConfigError",
    "ContentUnreadable",
    "DispatchInterrupted",
    "DispatchTimeout",
    "EmbeddedServerError",
    "EncodingError",
    "EventBusError",
    "EventIdConflict",
    "HandlerCancelled",
    "HandlerTimeout",
    "InvalidDispatcherReturn",
    "InvalidHandlerReturn",
    "InvalidHeader",
    "InvalidKey",
    "InvalidSettings",
    "InvalidTableName",
    "InvalidTopic",
    "InvalidTopicPattern",
    "InvalidUrl",
    "LeaseExhausted",
    "MessageError",
    "MessageTooLarge",
    "MissingExtra",
    "NoRoute",
    "NoSubscribers",
    "NotAnOutboxMessage",
    "NotInTransaction",
    "OutboxError",
    "PayloadMismatch",
    "PermanentError",
    "PermissionDenied",
    "PlanMismatch",
    "ProviderError",
    "RelayFailed",
    "RetentionZero",
    "RetryAfter",
    "SchemaBusy",
    "SchemaError",
    "SchemaMismatch",
    "SchemaMissing",
    "SchemaNotEmpty",
    "SchemaTooNew",
    "SchemaTooOld",
    "StorageError",
    "StorageTimeout",
    "StorageUnavailable",
    "TransactionError",
    "UnboundedFilter",
    "UnsupportedRecord",
    "UnsupportedTransaction",
]

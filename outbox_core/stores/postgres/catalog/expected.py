"""What the catalog shows for a table made by this version of the library.

Definitions are written as PostgreSQL 14 to 18 print them, not as ``ddl/create.sql`` writes them. The tests keep the two
equal on every version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from outbox_core.table import TableName

LEADER_TABLE: Final = "outbox_leader"
VERSION_TABLE: Final = "outbox_schema_version"

AUDIT_SUFFIX: Final = "_audit"
SEQUENCE_SUFFIX: Final = "_sequence_seq"
SEQUENCE_COLUMN: Final = "sequence"

CLAIM_COLUMNS: Final = frozenset({"attempts", "lock_token", "locked_at"})
"""The columns a claim updates. An index that names one of them ends HOT updates, and with them half the speed."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the catalog describes it; ``default`` is the expression's text, ``<sequence>`` the own sequence."""

    type: str
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What a relation must have. Constraints and indexes are keyed by what follows the relation's name in theirs."""

    columns: Mapping[str, Column]
    constraints: Mapping[str, str]
    indexes: Mapping[str, str] = field(default_factory=dict[str, str])
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


_TIME: Final = "timestamp with time zone"

OUTBOX: Final = Shape(
    columns={
        "id": Column("uuid", nullable=False, default="gen_random_uuid()"),
        "tenant_id": Column("uuid", nullable=False),
        "topic": Column("text", nullable=False),
        "payload": Column("jsonb"),
        "body": Column("bytea"),
        "content_type": Column("text"),
        "event_id": Column("uuid", nullable=False),
        "sequence": Column("bigint", nullable=False, default="nextval('<sequence>'::regclass)"),
        "created_at": Column(_TIME, nullable=False, default="now()"),
        "published_at": Column(_TIME),
        "attempts": Column("integer", nullable=False, default="0"),
        "available_at": Column(_TIME, nullable=False, default="clock_timestamp()"),
        "locked_at": Column(_TIME),
        "last_error": Column("text"),
        "key": Column("text"),
        "headers": Column("jsonb"),
        "traceparent": Column("text"),
        "tracestate": Column("text"),
        "digest": Column("bytea", nullable=False),
        "lock_token": Column("uuid"),
        "dead_at": Column(_TIME),
        "replays": Column("integer", nullable=False, default="0"),
    },
    constraints={
        "_pkey": "PRIMARY KEY (id)",
        "_event_id_key": "UNIQUE (event_id)",
        "_content_check": "CHECK ((num_nonnulls(payload, body) = 1))",
        "_type_check": "CHECK (((content_type IS NULL) OR (body IS NOT NULL)))",
        "_digest_check": "CHECK ((octet_length(digest) = 32))",
        "_attempts_check": "CHECK ((attempts >= 0))",
        "_replays_check": "CHECK ((replays >= 0))",
        "_state_check": (
            "CHECK ((((published_at IS NULL) AND (dead_at IS NULL)"
            " AND (locked_at IS NULL) AND (lock_token IS NULL))"
            " OR ((published_at IS NULL) AND (dead_at IS NULL)"
            " AND (locked_at IS NOT NULL) AND (lock_token IS NOT NULL))"
            " OR ((published_at IS NOT NULL) AND (dead_at IS NULL)"
            " AND (locked_at IS NULL) AND (lock_token IS NULL))"
            " OR ((published_at IS NULL) AND (dead_at IS NOT NULL)"
            " AND (locked_at IS NULL) AND (lock_token IS NULL))))"
        ),
    },
    indexes={
        "_pending": "btree (available_at, sequence) WHERE ((published_at IS NULL) AND (dead_at IS NULL))",
        "_key": (
            "btree (tenant_id, key, sequence)"
            " WHERE ((key IS NOT NULL) AND (published_at IS NULL) AND (dead_at IS NULL))"
        ),
        "_cleaner": "btree (published_at, sequence) WHERE (published_at IS NOT NULL)",
        "_tenant": "btree (tenant_id, sequence) WHERE (published_at IS NULL)",
        "_dead": "btree (dead_at, sequence) WHERE (dead_at IS NOT NULL)",
        "_dead_key": (
            "btree (tenant_id, key, sequence)"
            " WHERE ((key IS NOT NULL) AND (dead_at IS NOT NULL) AND (replays = 0))"
        ),
    },
    parameters={
        "fillfactor": "45",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_threshold": "1000",
        "autovacuum_vacuum_cost_delay": "0",
    },
)

AUDIT: Final = Shape(
    columns={
        "id": Column("uuid", nullable=False),
        "action": Column("text", nullable=False),
        "actor": Column("text", nullable=False),
        "reason": Column("text", nullable=False),
        "filter": Column("jsonb", nullable=False),
        "as_of": Column(_TIME, nullable=False),
        "planned": Column("bigint", nullable=False),
        "changed": Column("bigint", nullable=False, default="0"),
        "rate": Column("double precision"),
        "batches": Column("integer", nullable=False, default="0"),
        "cursor_at": Column(_TIME),
        "cursor_sequence": Column("bigint"),
        "paced_until": Column(_TIME),
        "started_at": Column(_TIME, nullable=False, default="now()"),
        "finished_at": Column(_TIME),
    },
    constraints={
        "_pkey": "PRIMARY KEY (id)",
        "_check": (
            "CHECK (((action = ANY (ARRAY['replay'::text, 'discard'::text, 'release'::text, 'postpone'::text,"
            " 'clean'::text])) AND (planned >= 0) AND (changed >= 0)))"
        ),
    },
    parameters={"fillfactor": "50"},
)

LEADER: Final = Shape(
    columns={
        "table_name": Column("text", nullable=False),
        "holder": Column("text"),
        "term": Column("bigint", nullable=False, default="0"),
        "heartbeat_at": Column(_TIME),
    },
    constraints={"_pkey": "PRIMARY KEY (table_name)"},
    parameters={"fillfactor": "10"},
)

VERSION: Final = Shape(
    columns={
        "table_name": Column("text", nullable=False),
        "version": Column("integer", nullable=False),
        "applied_at": Column(_TIME, nullable=False, default="now()"),
    },
    constraints={"_pkey": "PRIMARY KEY (table_name)"},
)


class AuditName(TableName):
    """The name of a table's audit, made from one that was checked; it may be longer than a table's own."""

    @classmethod
    def of(cls, table: TableName) -> AuditName:
        return cls(table.schema, table.name + AUDIT_SUFFIX)

    def __post_init__(self) -> None:
        """Nothing is left to check."""

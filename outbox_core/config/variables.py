"""Every variable of the environment that the library reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outbox_core.config.kinds import (
    Choice,
    DatabaseAddress,
    Destination,
    Duration,
    Kind,
    Secret,
    Tables,
    Text,
    Truth,
    Whole,
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: ``place`` is where its value stands in `Settings`, ``option`` how ``outbox relay`` calls it."""

    name: str
    place: str
    kind: Kind
    option: str
    meaning: str


VARIABLES: Final = (
    Variable(
        "OUTBOX_DATABASE_URL", "database_url", DatabaseAddress(), "--database",
        "The database.",
    ),
    Variable(
        "OUTBOX_RELAY_ENABLED", "relay_enabled", Truth(), "--enabled/--no-enabled",
        "Whether the relay runs at all.",
    ),
    Variable(
        "OUTBOX_RELAY_TABLES", "relay_tables", Tables(), "--table",
        "The tables to deliver. When there are none, nothing starts.",
    ),
    Variable(
        "OUTBOX_RELAY_TO", "relay_to", Destination(), "--to",
        "Where messages go: the URL of a dispatcher.",
    ),
    Variable(
        "OUTBOX_RELAY_ON_PUBLISHED", "relay.on_published", Choice(("mark", "delete")), "--on-published",
        "What becomes of a delivered message: it is marked and kept for the retention, or deleted at once.",
    ),
    Variable(
        "OUTBOX_RELAY_ON_DEAD", "relay.on_dead", Choice(("skip", "block")), "--on-dead",
        "Whether the messages behind a dead one of the same key go on or wait, which needs one active relay.",
    ),
    Variable(
        "OUTBOX_RELAY_SINGLE_ACTIVE", "relay.single_active", Truth(), "--single-active/--no-single-active",
        "Whether one relay at a time delivers a table, which order per key needs.",
    ),
    Variable(
        "OUTBOX_RELAY_POLL_INTERVAL", "relay.poll_interval", Duration(), "--poll-interval",
        "How often the table is looked at when no hint of new work comes.",
    ),
    Variable(
        "OUTBOX_RELAY_BATCH_SIZE", "relay.batch_size", Whole(), "--batch-size",
        "Messages of a claim; ten times as many while a backlog lasts.",
    ),
    Variable(
        "OUTBOX_RELAY_BATCH_BYTES", "relay.batch_bytes", Whole(), "--batch-bytes",
        "Payload bytes of a claim, as they are in memory.",
    ),
    Variable(
        "OUTBOX_RELAY_CONCURRENCY", "relay.concurrency", Whole(), "--concurrency",
        "Dispatches at one time, for dispatchers that take one message at a time.",
    ),
    Variable(
        "OUTBOX_RELAY_LOCK_TTL", "relay.lock_ttl", Duration(), "--lock-ttl",
        "How long a relay may hold a message before another takes it.",
    ),
    Variable(
        "OUTBOX_RELAY_MAX_ATTEMPTS", "relay.max_attempts", Whole(), "--max-attempts",
        "Attempts after which a message is dead.",
    ),
    Variable(
        "OUTBOX_RELAY_DISPATCH_TIMEOUT", "relay.dispatch_timeout", Duration(), "--dispatch-timeout",
        "How long one dispatch may take.",
    ),
    Variable(
        "OUTBOX_RELAY_DATABASE_TIMEOUT", "relay.database_timeout", Duration(), "--database-timeout",
        "How long one statement may take.",
    ),
    Variable(
        "OUTBOX_RELAY_BACKOFF_BASE", "relay.backoff_base", Duration(), "--backoff-base",
        "The wait after the first failure; it doubles with each.",
    ),
    Variable(
        "OUTBOX_RELAY_BACKOFF_CAP", "relay.backoff_cap", Duration("no wait"), "--backoff-cap",
        "The longest wait between two attempts.",
    ),
    Variable(
        "OUTBOX_RELAY_BACKOFF_JITTER", "relay.backoff_jitter", Duration("none"), "--backoff-jitter",
        "What chance adds to a wait, at most.",
    ),
    Variable(
        "OUTBOX_RELAY_TAKEOVER", "relay.takeover", Duration(), "--takeover",
        "The silence after which a leader is replaced.",
    ),
    Variable(
        "OUTBOX_RELAY_GRACE", "relay_grace", Duration("none"), "--grace",
        "How long what is in dispatch may go on when the relay is told to stop.",
    ),
    Variable(
        "OUTBOX_LAST_ERROR_MAX_BYTES", "relay.last_error_max_bytes", Whole(64), "--last-error-max-bytes",
        "Bytes of an error that are kept with its message.",
    ),
    Variable(
        "OUTBOX_CLEANER_ENABLED", "cleaner.enabled", Truth(), "--cleaner/--no-cleaner",
        "Whether old messages are deleted.",
    ),
    Variable(
        "OUTBOX_CLEANER_TABLES", "cleaner_tables", Tables(), "--cleaner-table",
        "The tables to clean. When there are none: the relay's.",
    ),
    Variable(
        "OUTBOX_CLEANER_INTERVAL", "cleaner.interval", Duration(), "--cleaner-interval",
        "The pause between two passes of the cleaner.",
    ),
    Variable(
        "OUTBOX_CLEANER_RETENTION", "cleaner.retention",
        Duration(instead="to keep none, let the relay delete them: OUTBOX_RELAY_ON_PUBLISHED=delete"),
        "--cleaner-retention",
        "How long a published message is kept.",
    ),
    Variable(
        "OUTBOX_CLEANER_DEAD_RETENTION", "cleaner.dead_retention", Duration("never deleted"),
        "--cleaner-dead-retention",
        "How long a dead message is kept.",
    ),
    Variable(
        "PROMETHEUS_METRICS_ENABLED", "metrics.enabled", Truth(), "--metrics/--no-metrics",
        "Whether `outbox relay` serves metrics. Unless it is set: when a port is given.",
    ),
    Variable(
        "PROMETHEUS_METRICS_PATH", "metrics.path", Text("a path that begins with /", "/"), "--metrics-path",
        "Where they are served.",
    ),
    Variable(
        "OUTBOX_METRICS_HOST", "metrics.host", Text("the name or address of a host"), "--metrics-host",
        "The address that metrics and health are served on.",
    ),
    Variable(
        "OUTBOX_METRICS_PORT", "metrics.port", Whole(0, 65535), "--metrics-port",
        "The port of that address, 9464 unless given; 0 takes a free one. Health is served whenever it is given.",
    ),
    Variable(
        "OUTBOX_LOG_FORMAT", "logs.format", Choice(("text", "json")), "--log-format",
        "Lines for people, or a JSON object a line.",
    ),
    Variable(
        "OUTBOX_LOG_LEVEL", "logs.level", Choice(("debug", "info", "warning", "error")), "--log-level",
        "The least that is logged.",
    ),
    Variable(
        "OUTBOX_LOG_TENANTS", "logs.tenants", Choice(("off", "hash", "drop")), "--log-tenants",
        "Whether tenants in the log are masked: off shows them, hash a short hash, drop nothing.",
    ),
    Variable(
        "OUTBOX_LOG_TENANTS_SECRET", "logs.tenants_secret", Secret("text of at most 64 bytes", 64),
        "--log-tenants-secret",
        "What goes into the hash, so that whoever knows the tenants cannot tell whose it is.",
    ),
)  # fmt: skip
"""In the order in which the reference lists them."""

PREFIX: Final = "OUTBOX_"
OURS_IN_TESTS: Final = "OUTBOX_TEST_"

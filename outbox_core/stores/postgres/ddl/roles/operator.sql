-- An operator replays, discards, releases and postpones messages, and leaves a record of it that it cannot take back. It
-- sees no payload, body or headers.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT (
    id, tenant_id, topic, content_type, event_id, sequence, created_at, published_at, attempts, available_at, locked_at,
    last_error, key, traceparent, tracestate, digest, lock_token, dead_at, replays
) ON {table} TO {role};
GRANT UPDATE (published_at, attempts, available_at, last_error, dead_at, replays), DELETE ON {table} TO {role};
GRANT SELECT, INSERT ON {schema}."{name}_audit" TO {role};
GRANT UPDATE (changed, batches, cursor_at, cursor_sequence, paced_until, finished_at)
    ON {schema}."{name}_audit" TO {role};
GRANT SELECT ON {schema}."outbox_leader", {schema}."outbox_schema_version" TO {role};

-- A viewer sees what is pending, stuck or dead, but no payload, body or headers.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT (
    id, tenant_id, topic, content_type, event_id, sequence, created_at, published_at, attempts, available_at, locked_at,
    last_error, key, traceparent, tracestate, digest, lock_token, dead_at, replays
) ON {table} TO {role};
GRANT SELECT ON {schema}."{name}_audit", {schema}."outbox_leader", {schema}."outbox_schema_version" TO {role};

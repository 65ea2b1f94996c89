-- The same row as enqueue writes, as an application without the library would write it.
INSERT INTO {table} (
    id, event_id, tenant_id, topic, key, payload, body, content_type,
    headers, traceparent, tracestate, digest, available_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, clock_timestamp())
ON CONFLICT (event_id) DO NOTHING
RETURNING sequence

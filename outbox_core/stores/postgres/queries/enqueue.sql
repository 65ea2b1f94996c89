-- Write one message. The transaction id is taken before available_at is stamped: a relay that remembers how far it has
-- read relies on every open writer being visible as a running transaction from before its stamp.
INSERT INTO {table} (
    id, event_id, tenant_id, topic, key, payload, body, content_type,
    headers, traceparent, tracestate, digest,
    available_at
)
VALUES (
    $1::text::uuid, $2::text::uuid, $3::text::uuid, $4::text, $5::text, $6::text::jsonb, $7::bytea, $8::text,
    $9::text::jsonb, $10::text, $11::text, $12::bytea,
    CASE
        WHEN pg_catalog.pg_current_xact_id() IS NOT NULL
            THEN greatest(pg_catalog.clock_timestamp() + $13::text::interval, $14::text::timestamptz)
    END
)
ON CONFLICT (event_id) DO NOTHING
RETURNING sequence, CASE WHEN $15::text <> '' THEN pg_catalog.pg_notify('outbox', $15::text)::text END

-- Write many messages: sequences are drawn in input order, then rows go in sorted by event_id, so that order per key
-- holds and two batches that share ids in different order wait for each other instead of deadlocking.
-- Bytes come as hexadecimal text: of array types asyncpg knows text[] alone, and would look bytea[] up in the catalog.
WITH numbered AS MATERIALIZED (
    SELECT
        pg_catalog.nextval('{schema}."{name}_sequence_seq"') AS sequence,
        greatest(pg_catalog.clock_timestamp() + coalesce(delay, '0')::interval, stamp::timestamptz) AS available_at,
        id::uuid AS id, event_id::uuid AS event_id, tenant_id::uuid AS tenant_id, topic, key,
        payload::jsonb AS payload, pg_catalog.decode(body, 'hex') AS body, content_type, headers::jsonb AS headers,
        traceparent, tracestate, pg_catalog.decode(digest, 'hex') AS digest
    FROM (
        SELECT
            pg_catalog.pg_current_xact_id() AS xid,
            (
                SELECT pg_catalog.count(pg_catalog.pg_advisory_xact_lock(lock_key::bigint))
                FROM unnest($16::text[]) AS lock_key
            ) AS locks,
            CASE WHEN $15::text = '' THEN '' ELSE pg_catalog.pg_notify('outbox', $15::text)::text END AS hint
        OFFSET 0
    ) AS first,
    unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[]
    ) AS input (
        id, event_id, tenant_id, topic, key, payload, body, content_type,
        headers, traceparent, tracestate, digest, delay, stamp
    )
    WHERE first.xid IS NOT NULL AND first.locks IS NOT NULL AND first.hint IS NOT NULL
)
INSERT INTO {table} (
    sequence, available_at, id, event_id, tenant_id, topic, key, payload, body, content_type,
    headers, traceparent, tracestate, digest
)
SELECT
    sequence, available_at, id, event_id, tenant_id, topic, key, payload, body, content_type,
    headers, traceparent, tracestate, digest
FROM numbered
ORDER BY event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING sequence

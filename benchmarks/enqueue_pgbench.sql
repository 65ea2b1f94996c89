INSERT INTO {table} (
    id, event_id, tenant_id, topic, key, payload, body, content_type,
    headers, traceparent, tracestate, digest, available_at
)
SELECT
    {uuid}(), {uuid}(), tenant_id::uuid, topic, key, payload::jsonb, body, content_type,
    headers::jsonb, traceparent, tracestate, digest, clock_timestamp()
FROM unnest(
    :tenants::text[], :topics::text[], :keys::text[], :payloads::text[], :bodies::bytea[], :types::text[],
    :headers::text[], :parents::text[], :states::text[], :digests::bytea[]
) AS input (tenant_id, topic, key, payload, body, content_type, headers, traceparent, tracestate, digest)
ON CONFLICT (event_id) DO NOTHING
RETURNING sequence;

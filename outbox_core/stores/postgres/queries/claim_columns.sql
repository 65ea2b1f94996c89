    id, tenant_id, topic, coalesce(body, convert_to(payload::text, 'UTF8')), coalesce(content_type, 'application/json'),
    event_id, sequence, created_at, attempts, available_at, key, headers::text, traceparent, tracestate, replays

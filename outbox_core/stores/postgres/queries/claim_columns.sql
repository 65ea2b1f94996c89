    id, tenant_id, topic, coalesce(body, convert_to(payload::text, 'UTF8')), coalesce(content_type, 'application/json'),
    event_id, sequence,
    -- Within the years that Python knows, so that a row edited by hand cannot stop the others.
    greatest(least(created_at, '9999-12-30Z'), '0001-01-02Z'), attempts,
    greatest(least(available_at, '9999-12-30Z'), '0001-01-02Z'), key, headers::text, traceparent, tracestate, replays,
    coalesce(last_error LIKE 'TX.LEASE %', false)

    sequence, event_id::text, tenant_id::text, topic, key,
    CASE
        WHEN dead_at IS NOT NULL THEN 'dead'
        WHEN published_at IS NOT NULL THEN 'published'
        WHEN lock_token IS NOT NULL THEN 'in_flight'
        ELSE 'pending'
    END,
    attempts, replays,
    (extract(epoch FROM created_at) * 1000000)::bigint,
    (extract(epoch FROM available_at) * 1000000)::bigint,
    (extract(epoch FROM published_at) * 1000000)::bigint,
    (extract(epoch FROM dead_at) * 1000000)::bigint,
    last_error,
    coalesce(content_type, 'application/json')

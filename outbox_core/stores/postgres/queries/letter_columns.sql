    sequence, event_id, tenant_id, topic, key,
    CASE
        WHEN dead_at IS NOT NULL THEN 'dead'
        WHEN published_at IS NOT NULL THEN 'published'
        WHEN lock_token IS NOT NULL THEN 'in_flight'
        ELSE 'pending'
    END,
    attempts, replays, created_at, available_at, published_at, dead_at, last_error,
    coalesce(content_type, 'application/json')

-- What a first attempt at an outbox does.
UPDATE {table}
SET locked_at = now(), lock_token = gen_random_uuid(), attempts = attempts + 1
WHERE id IN (
    SELECT id
    FROM {table}
    WHERE published_at IS NULL AND dead_at IS NULL AND locked_at IS NULL AND available_at <= now()
    ORDER BY available_at, sequence
    LIMIT 100
    FOR UPDATE SKIP LOCKED
)
RETURNING id, topic, payload::text, key, headers::text

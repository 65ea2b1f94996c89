-- Delete dead rows older than the retention, oldest first, from a place on; never one that another message of its key is
-- waiting behind. A row that is being replayed is passed over, and the DELETE looks again.
WITH turn AS MATERIALIZED (
    -- A delete that a crash of the server takes back is done again: no need to make writers wait for one more flush.
    SELECT pg_try_advisory_xact_lock($1) AND set_config('synchronous_commit', 'off', true) = 'off' AS ours
), page AS MATERIALIZED (
    SELECT id, tenant_id, key, dead_at, sequence
    FROM {table}
    WHERE
        dead_at IS NOT NULL
        AND (dead_at, sequence) > ($2::timestamptz, $3::bigint)
        AND dead_at < now() - make_interval(secs => $4)
        AND (SELECT ours FROM turn)
    ORDER BY dead_at, sequence
    LIMIT $5
    FOR UPDATE SKIP LOCKED
), waiting AS MATERIALIZED (
    -- Of each key the last message that is neither published nor dead: every dead one before it may hold it up.
    SELECT keys.tenant_id, keys.key, behind.sequence
    FROM (SELECT DISTINCT tenant_id, key FROM page WHERE key IS NOT NULL) AS keys
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {table} AS message
        WHERE
            (message.tenant_id, message.key, message.sequence) > (keys.tenant_id, keys.key, 0)
            AND (message.tenant_id, message.key, message.sequence) < (keys.tenant_id, keys.key, 9223372036854775807)
            AND message.key IS NOT NULL AND message.published_at IS NULL AND message.dead_at IS NULL
        ORDER BY message.tenant_id DESC, message.key DESC, message.sequence DESC
        LIMIT 1
    ) AS behind
), deleted AS (
    DELETE FROM {table}
    WHERE
        id = ANY (ARRAY(
            SELECT page.id
            FROM page
            LEFT JOIN waiting ON waiting.tenant_id = page.tenant_id AND waiting.key = page.key
            WHERE waiting.sequence IS NULL OR waiting.sequence < page.sequence
        ))
        AND dead_at < now() - make_interval(secs => $4)
    RETURNING id
)
SELECT (SELECT ours FROM turn), (SELECT count(*) FROM page), (SELECT count(*) FROM deleted), last.dead_at, last.sequence
FROM (SELECT) AS always
LEFT JOIN (SELECT dead_at, sequence FROM page ORDER BY dead_at DESC, sequence DESC LIMIT 1) AS last ON true

-- What a cleaner would delete now: published rows and dead ones that no message of their key is waiting behind, each counted
-- up to a limit, and the oldest moment among them. A retention that is NULL keeps everything.
SELECT published.rows, dead.rows, least(published.oldest, dead.oldest)
FROM (
    SELECT count(*) AS rows, min(published_at) AS oldest
    FROM (
        SELECT published_at
        FROM {table}
        WHERE published_at IS NOT NULL AND published_at < now() - make_interval(secs => $1::float8)
        ORDER BY published_at, sequence
        LIMIT $3
    ) AS old
) AS published
CROSS JOIN (
    SELECT count(*) AS rows, min(dead_at) AS oldest
    FROM (
        SELECT dead_at
        FROM {table} AS letter
        WHERE
            dead_at IS NOT NULL AND dead_at < now() - make_interval(secs => $2::float8)
            AND (key IS NULL OR NOT EXISTS (
                SELECT FROM {table} AS message
                WHERE
                    message.tenant_id = letter.tenant_id AND message.key = letter.key
                    AND message.sequence > letter.sequence
                    AND message.key IS NOT NULL AND message.published_at IS NULL AND message.dead_at IS NULL
            ))
        ORDER BY dead_at, sequence
        LIMIT $3
    ) AS old
) AS dead

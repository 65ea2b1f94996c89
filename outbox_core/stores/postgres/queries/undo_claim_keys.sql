-- Release what a claim of keys leased whose answer was lost: it took the first rows of its keys, so they are searched
-- there, among a few times as many as it asked for: some may have come before them since. A row that another session
-- locks is free when its lease ends.
UPDATE {table}
SET locked_at = NULL, lock_token = NULL, attempts = greatest(attempts - 1, 0)
WHERE id = ANY (ARRAY(
    SELECT id
    FROM {table}
    WHERE
        lock_token = $1
        AND id = ANY (ARRAY(
            SELECT head.id
            FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS requested (tenant_id, key, rows)
            CROSS JOIN LATERAL (
                SELECT id, lock_token
                FROM {table} AS message
                WHERE
                    (message.tenant_id, message.key, sequence) > (requested.tenant_id, requested.key, 0)
                    AND (message.tenant_id, message.key, sequence)
                        < (requested.tenant_id, requested.key, 9223372036854775807)
                    AND message.key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL
                    AND (replays = 0 OR lock_token = $1)
                ORDER BY message.tenant_id, message.key, sequence
                LIMIT requested.rows
            ) AS head
            WHERE head.lock_token = $1
        ))
    FOR UPDATE SKIP LOCKED
)) AND lock_token = $1
RETURNING id

-- Release what a follow of unknown outcome leased: it took the first rows of its keys, so they are looked for there,
-- among so many of each that the look stays short, however many have come before them since. One that is locked by
-- somebody waits for its lease to end.
UPDATE {table}
SET locked_at = NULL, lock_token = NULL, attempts = greatest(attempts - 1, 0)
WHERE id = ANY (ARRAY(
    SELECT id
    FROM {table}
    WHERE
        lock_token = $1
        AND id = ANY (ARRAY(
            SELECT head.id
            FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS wanted (tenant_id, key, rows)
            CROSS JOIN LATERAL (
                SELECT id, lock_token
                FROM {table} AS message
                WHERE
                    (message.tenant_id, message.key, sequence) > (wanted.tenant_id, wanted.key, 0)
                    AND (message.tenant_id, message.key, sequence)
                        < (wanted.tenant_id, wanted.key, 9223372036854775807)
                    AND message.key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL
                    AND (replays = 0 OR lock_token = $1)
                ORDER BY message.tenant_id, message.key, sequence
                LIMIT wanted.rows
            ) AS head
            WHERE head.lock_token = $1
        ))
    FOR UPDATE SKIP LOCKED
)) AND lock_token = $1
RETURNING id

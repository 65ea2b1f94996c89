-- Release what a claim of unknown outcome leased: it took rows from the first places it could, so they are looked for
-- there, among so many places that the look stays short. What is missed, or locked by somebody, waits for its lease to
-- end.
UPDATE {table}
SET locked_at = NULL, lock_token = NULL, attempts = greatest(attempts - 1, 0)
WHERE id = ANY (ARRAY(
    SELECT id
    FROM {table}
    WHERE
        lock_token = $1
        AND id = ANY (ARRAY(
            SELECT id
            FROM (
                SELECT id, lock_token
                FROM {table}
                WHERE
                    published_at IS NULL AND dead_at IS NULL
                    AND available_at <= now()
                    AND (available_at, sequence) >= (
                        CASE
                            WHEN $2::timestamptz < '1700-01-02Z' THEN '-infinity'::timestamptz
                            ELSE $2::timestamptz
                        END,
                        $3::bigint
                    )
                    -- Passed over as in the claim: there may be any number of them before what it took.
                    AND (key IS NULL OR (tenant_id, key) NOT IN (SELECT * FROM unnest($5::uuid[], $6::text[])))
                    AND topic <> ALL ($7::text[])
                ORDER BY available_at, sequence
                LIMIT $4
            ) AS first_places
            WHERE lock_token = $1
        ))
    FOR UPDATE SKIP LOCKED
)) AND lock_token = $1
RETURNING id

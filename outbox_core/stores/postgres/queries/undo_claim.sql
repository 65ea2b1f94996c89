-- Release what a claim leased whose answer was lost: it took the first rows it could, so they are searched there, among
-- at most $4 rows, to keep the search short. A row that is missed, or locked by another session, is free when its lease
-- ends.
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
                    -- Passed over as in the claim: any number of them may lie before what it took.
                    AND (key IS NULL OR (tenant_id, key) NOT IN (SELECT * FROM unnest($5::uuid[], $6::text[])))
                    AND topic <> ALL ($7::text[])
                ORDER BY available_at, sequence
                LIMIT $4
            ) AS first_rows
            WHERE lock_token = $1
        ))
    FOR UPDATE SKIP LOCKED
)) AND lock_token = $1
RETURNING id

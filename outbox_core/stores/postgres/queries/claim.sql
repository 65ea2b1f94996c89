-- Lease due rows. Touches no column that an index names, so that the update stays on its page (HOT).
WITH leader AS MATERIALIZED (
    -- Held until the claim commits: a new leader waits for it, and a deposed one finds its term gone and takes nothing.
    SELECT FROM {schema}."outbox_leader" WHERE table_name = '{name}' AND term = $1::bigint FOR SHARE
)
UPDATE {table}
SET locked_at = now(), lock_token = $2, attempts = least(attempts, 2147483646) + 1,
    -- Whoever had it before crashed or froze with it: that is on record, and seen, until an attempt has an outcome.
    last_error = CASE WHEN locked_at IS NULL THEN last_error ELSE 'TX.LEASE the lease before ended without an outcome' END
WHERE ctid = ANY (ARRAY(
    SELECT place
    FROM (
        SELECT place, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
        FROM (
            SELECT ctid AS place,
                {include queries/row_bytes.sql} AS bytes
            FROM {table}
            WHERE
                published_at IS NULL AND dead_at IS NULL
                AND available_at <= now()
                AND (available_at, sequence) >= (
                    -- The driver knows no time before year 1, where a row edited by hand may be.
                    CASE WHEN $3::timestamptz < '0001-01-03Z' THEN '-infinity'::timestamptz ELSE $3::timestamptz END, $4::bigint
                )
                AND (locked_at IS NULL OR locked_at < now() - make_interval(secs => $5))
                AND (key IS NULL OR (tenant_id, key) NOT IN (SELECT * FROM unnest($6::uuid[], $7::text[])))
                AND topic <> ALL ($8::text[])
            ORDER BY available_at, sequence
            LIMIT $9
            FOR UPDATE SKIP LOCKED
        ) AS due
    ) AS weighed
    -- The leader's row is asked for after the first row that is due, and only then: to lock it takes a transaction id and
    -- a flush of the log, which looking in vain many times a second must not cost.
    WHERE CASE WHEN bytes_before < $10 THEN $1::bigint IS NULL OR EXISTS (SELECT FROM leader) END
))
RETURNING
    {include queries/claim_columns.sql}

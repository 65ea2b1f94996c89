-- Lease due rows of given keys, the lowest sequences of each first.
WITH leader AS MATERIALIZED (
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
            SELECT head.place, head.bytes
            FROM unnest($3::uuid[], $4::text[], $5::bigint[]) AS wanted (tenant_id, key, rows)
            CROSS JOIN LATERAL (
                SELECT
                    ctid AS place, available_at, locked_at,
                    {include queries/row_bytes.sql} AS bytes
                FROM {table} AS message
                WHERE
                    -- Written as a range of all three columns, so that no other index than the key's own can serve it.
                    (message.tenant_id, message.key, sequence) > (wanted.tenant_id, wanted.key, 0)
                    AND (message.tenant_id, message.key, sequence)
                        < (wanted.tenant_id, wanted.key, 9223372036854775807)
                    AND message.key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL
                ORDER BY message.tenant_id, message.key, sequence
                LIMIT wanted.rows
                FOR UPDATE SKIP LOCKED
            ) AS head
            WHERE
                head.available_at <= now()
                AND (head.locked_at IS NULL OR head.locked_at < now() - make_interval(secs => $6))
        ) AS due
    ) AS weighed
    WHERE CASE WHEN bytes_before < $7 THEN EXISTS (SELECT FROM leader) END
))
RETURNING
    {include queries/claim_columns.sql}

-- Lease due rows of given keys, the lowest sequences of each first, and look whether a message hides before them.
WITH leader AS MATERIALIZED (
    SELECT FROM {schema}."outbox_leader" WHERE table_name = '{name}' AND term = $1::bigint FOR SHARE
), picked AS MATERIALIZED (
    SELECT place, tenant_id, key, sequence, floor
    FROM (
        SELECT
            place, tenant_id, key, sequence, floor,
            sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
        FROM (
            SELECT head.place, wanted.tenant_id, wanted.key, head.sequence, wanted.floor, head.bytes
            FROM unnest($8::uuid[], $9::text[], $10::bigint[], $12::bigint[]) AS wanted (tenant_id, key, rows, floor)
            CROSS JOIN LATERAL (
                SELECT
                    ctid AS place, available_at, locked_at, sequence,
                    {include queries/row_bytes.sql without_content=$11} AS bytes
                FROM {table} AS message
                WHERE
                    -- Written as a range of all three columns, so that no other index than the key's own can serve it.
                    (message.tenant_id, message.key, sequence) > (wanted.tenant_id, wanted.key, wanted.floor)
                    AND (message.tenant_id, message.key, sequence)
                        < (wanted.tenant_id, wanted.key, 9223372036854775807)
                    AND message.key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL
                    -- A replayed one holds nobody up: while it waits it does not count among the first.
                    AND (
                        replays = 0
                        OR available_at <= now()
                        AND (locked_at IS NULL OR locked_at < now() - make_interval(secs => $3))
                    )
                ORDER BY message.tenant_id, message.key, sequence
                LIMIT wanted.rows
                FOR UPDATE SKIP LOCKED
            ) AS head
            WHERE
                head.available_at <= now()
                AND (head.locked_at IS NULL OR head.locked_at < now() - make_interval(secs => $3))
        ) AS due
    ) AS weighed
    WHERE CASE WHEN bytes_before < $4 THEN EXISTS (SELECT FROM leader) END
)
{include queries/lease.sql without_content=$11 find_predecessors=true}

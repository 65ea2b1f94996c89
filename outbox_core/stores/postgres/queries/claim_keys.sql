-- Lease due rows of given keys, lowest sequences of each first, and find the predecessors of these keys.
WITH leader AS MATERIALIZED (
    SELECT FROM {schema}."outbox_leader" WHERE table_name = '{name}' AND term = $1::bigint FOR SHARE
), picked AS MATERIALIZED (
    SELECT tid, tenant_id, key, sequence, after
    FROM (
        SELECT
            tid, tenant_id, key, sequence, after,
            sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
        FROM (
            SELECT head.tid, requested.tenant_id, requested.key, head.sequence, requested.after, head.bytes
            FROM unnest($8::uuid[], $9::text[], $10::bigint[], $12::bigint[]) AS requested (tenant_id, key, rows, after)
            CROSS JOIN LATERAL (
                SELECT
                    ctid AS tid, available_at, locked_at, sequence,
                    {include queries/row_bytes.sql without_content=$11} AS bytes
                FROM {table} AS message
                WHERE
                    -- A range of all three columns, so that only the key's own index can serve it.
                    (message.tenant_id, message.key, sequence) > (requested.tenant_id, requested.key, requested.after)
                    AND (message.tenant_id, message.key, sequence)
                        < (requested.tenant_id, requested.key, 9223372036854775807)
                    AND message.key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL
                    -- A replayed row holds up no other: while it waits it is not one of the requested rows.
                    AND (
                        replays = 0
                        OR available_at <= now()
                        AND (locked_at IS NULL OR locked_at < now() - make_interval(secs => $3))
                    )
                ORDER BY message.tenant_id, message.key, sequence
                LIMIT requested.rows
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

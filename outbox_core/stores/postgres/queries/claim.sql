-- Lease due rows, and find the predecessors of their keys in the same snapshot. Touches no indexed column, so that the
-- update stays on its page (HOT).
WITH leader AS MATERIALIZED (
    -- Locked until the claim commits: a new leader waits for it, and a deposed one finds its term gone and takes nothing.
    SELECT FROM {schema}."outbox_leader" WHERE table_name = '{name}' AND term = $1::bigint FOR SHARE
), picked AS MATERIALIZED (
    SELECT tid, tenant_id, key, sequence, 0::bigint AS after
    FROM (
        SELECT
            tid, tenant_id, key, sequence,
            sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
        FROM (
            SELECT ctid AS tid, tenant_id, key, sequence,
                {include queries/row_bytes.sql without_content=$14} AS bytes
            FROM {table}
            WHERE
                published_at IS NULL AND dead_at IS NULL
                AND available_at <= now()
                AND (available_at, sequence) <= ($15::timestamptz, $16::bigint)
                AND (available_at, sequence) >= (
                    -- A row edited by hand may lie before 1700, where positions are the same for all rows.
                    CASE WHEN $8::timestamptz < '1700-01-02Z' THEN '-infinity'::timestamptz ELSE $8::timestamptz END, $9::bigint
                )
                AND (locked_at IS NULL OR locked_at < now() - make_interval(secs => $3))
                AND (key IS NULL OR (tenant_id, key) NOT IN (SELECT * FROM unnest($10::uuid[], $11::text[])))
                AND topic <> ALL ($12::text[])
            ORDER BY available_at, sequence
            LIMIT $13
            FOR UPDATE SKIP LOCKED
        ) AS due
    ) AS weighed
    -- The leader's row is read after the first due row, and only then: locking it takes a transaction id and a flush of
    -- the log, which claims that find nothing, many a second, must not cost.
    WHERE CASE WHEN bytes_before < $4 THEN $1::bigint IS NULL OR EXISTS (SELECT FROM leader) END
)
{include queries/lease.sql without_content=$14 find_predecessors=$17}

-- For each key, the first unresolved row between two sequences that this claim has not leased, and when it will be due.
SELECT
    span.ordinality, earlier.sequence,
    CASE WHEN earlier.dead_at IS NULL THEN extract(
        epoch FROM greatest(earlier.available_at, earlier.locked_at + make_interval(secs => $6), now()) - now()
    )::float8 END
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
    AS span (tenant_id, key, after, before, ordinality)
CROSS JOIN LATERAL (
    SELECT sequence, available_at, locked_at, dead_at
    FROM {table} AS message
    WHERE
        -- Written as a range of all three columns, so that no other index than the key's own can serve it.
        (message.tenant_id, message.key, sequence) > (span.tenant_id, span.key, span.after)
        AND (message.tenant_id, message.key, sequence) < (span.tenant_id, span.key, span.before)
        AND message.key IS NOT NULL AND published_at IS NULL
        AND lock_token IS DISTINCT FROM $5
        AND replays = 0
        AND (dead_at IS NULL OR $7::boolean)
    ORDER BY message.tenant_id, message.key, sequence
    LIMIT 1
) AS earlier

-- For each key, the first unresolved row below a sequence that is not in the relay's hand, and when it will be due. Looked
-- for from the beginning: what was written first may be committed last, when later ones are in hand.
SELECT
    span.ordinality, earlier.sequence,
    CASE WHEN earlier.dead_at IS NULL THEN extract(
        epoch FROM greatest(earlier.available_at, earlier.locked_at + make_interval(secs => $5), now()) - now()
    )::float8 END
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY AS span (tenant_id, key, before, ordinality)
CROSS JOIN LATERAL (
    SELECT sequence, available_at, locked_at, dead_at
    FROM {table} AS message
    WHERE
        -- Written as a range of all three columns, so that no other index than the key's own can serve it.
        (message.tenant_id, message.key, sequence) > (span.tenant_id, span.key, 0)
        AND (message.tenant_id, message.key, sequence) < (span.tenant_id, span.key, span.before)
        AND message.key IS NOT NULL AND published_at IS NULL
        AND (lock_token IS NULL OR lock_token <> ALL ($4::uuid[]))
        AND replays = 0
        AND (dead_at IS NULL OR $6::boolean)
    ORDER BY message.tenant_id, message.key, sequence
    LIMIT 1
) AS earlier

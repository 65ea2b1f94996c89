-- The first unresolved message of a key, living or dead, each from an index that has no others in it; a replayed one
-- holds up no other.
SELECT id
FROM (
    (
        SELECT id, sequence
        FROM {table}
        WHERE
            (tenant_id, key, sequence) > ($1::uuid, $2::text, 0)
            AND (tenant_id, key, sequence) < ($1::uuid, $2::text, 9223372036854775807)
            AND key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL AND replays = 0
        ORDER BY tenant_id, key, sequence
        LIMIT 1
    )
    UNION ALL
    (
        SELECT id, sequence
        FROM {table}
        WHERE
            (tenant_id, key, sequence) > ($1::uuid, $2::text, 0)
            AND (tenant_id, key, sequence) < ($1::uuid, $2::text, 9223372036854775807)
            AND key IS NOT NULL AND dead_at IS NOT NULL AND replays = 0
        ORDER BY tenant_id, key, sequence
        LIMIT 1
    )
) AS heads
ORDER BY sequence
LIMIT 1

-- The first unresolved message of a key that may hold up those behind it.
SELECT
    {include queries/letter_columns.sql}
FROM {table}
WHERE
    (tenant_id, key, sequence) > ($1::uuid, $2::text, 0)
    AND (tenant_id, key, sequence) < ($1::uuid, $2::text, 9223372036854775807)
    AND key IS NOT NULL AND published_at IS NULL AND replays = 0
ORDER BY tenant_id, key, sequence
LIMIT 1

-- One tenant's messages neither published nor dead, oldest sequence first.
SELECT
    {include queries/stored_columns.sql}
FROM {table}
WHERE tenant_id = $2::text::uuid AND published_at IS NULL AND dead_at IS NULL
ORDER BY sequence
LIMIT $1::text::bigint

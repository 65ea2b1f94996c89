-- Messages neither published nor dead, in the order in which they come up for a claim, with their content.
SELECT
    {include queries/stored_columns.sql},
    {include queries/stored_content.sql}
FROM {table}
WHERE published_at IS NULL AND dead_at IS NULL
ORDER BY available_at, sequence
LIMIT $1::text::bigint

-- A page of dead letters, by when they died.
SELECT
    {include queries/letter_columns.sql}
FROM {table}
WHERE
    dead_at IS NOT NULL
    AND (dead_at, sequence) > ($7::timestamptz, $8::bigint)
    AND dead_at >= coalesce($5::timestamptz, '-infinity') AND dead_at < coalesce($6::timestamptz, 'infinity')
    AND ($4::uuid[] IS NULL OR event_id = ANY ($4))
    AND
{include queries/letter_filter.sql}
ORDER BY dead_at, sequence
LIMIT $9

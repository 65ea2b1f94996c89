-- How many dead letters there are.
SELECT count(*)
FROM {table}
WHERE
    dead_at >= coalesce($5::timestamptz, '-infinity') AND dead_at < coalesce($6::timestamptz, 'infinity')
    AND ($4::uuid[] IS NULL OR event_id = ANY ($4))
    AND
{include queries/letter_filter.sql}

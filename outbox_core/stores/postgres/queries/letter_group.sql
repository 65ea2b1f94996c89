-- Dead letters counted by one of their properties, the most frequent first.
SELECT
    CASE $7::text
        WHEN 'code' THEN coalesce(nullif(split_part(last_error, ' ', 1), ''), 'UNKNOWN.ERROR')
        WHEN 'topic' THEN topic
        WHEN 'tenant' THEN tenant_id::text
        WHEN 'hour' THEN to_char(dead_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24":00Z"')
    END AS value,
    count(*) AS messages, min(dead_at), max(dead_at)
FROM {table}
WHERE
    dead_at >= coalesce($5::timestamptz, '-infinity') AND dead_at < coalesce($6::timestamptz, 'infinity')
    AND ($4::uuid[] IS NULL OR event_id = ANY ($4))
    AND
{include queries/letter_filter.sql}
GROUP BY value
ORDER BY messages DESC, value
LIMIT $8

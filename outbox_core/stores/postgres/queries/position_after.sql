-- The position that is $3 pending rows on from another, if there are as many.
-- Within the years that Python knows, as in the claim.
SELECT greatest(available_at, '1700-01-01Z'), sequence
FROM {table}
WHERE
    published_at IS NULL AND dead_at IS NULL
    AND available_at <= now()
    AND (available_at, sequence) >= (
        CASE WHEN $1::timestamptz < '1700-01-02Z' THEN '-infinity'::timestamptz ELSE $1::timestamptz END, $2::bigint
    )
ORDER BY available_at, sequence
OFFSET $3
LIMIT 1

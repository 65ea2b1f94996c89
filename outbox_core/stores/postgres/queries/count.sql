-- How many rows there are, of one tenant or all, in one state or all.
SELECT count(*)
FROM {table}
WHERE
    ($1::text IS NULL OR tenant_id = $1::text::uuid)
    AND ($2::text IS NULL OR $2::text = CASE
        WHEN dead_at IS NOT NULL THEN 'dead'
        WHEN published_at IS NOT NULL THEN 'published'
        WHEN lock_token IS NOT NULL THEN 'in_flight'
        ELSE 'pending'
    END)

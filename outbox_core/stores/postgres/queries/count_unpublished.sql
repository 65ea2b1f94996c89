-- How many rows are in one of the states before publication: the partial indexes answer this without the published rows.
SELECT count(*)
FROM {table}
WHERE
    published_at IS NULL
    AND ($1::text IS NULL OR tenant_id = $1::text::uuid)
    AND $2::text = CASE
        WHEN dead_at IS NOT NULL THEN 'dead'
        WHEN lock_token IS NOT NULL THEN 'in_flight'
        ELSE 'pending'
    END

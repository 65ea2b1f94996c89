-- The verdicts on record, of those rows that have one.
SELECT id, published_at IS NOT NULL, attempts, replays, last_error
FROM {table}
WHERE id = ANY ($1::uuid[]) AND (published_at IS NOT NULL OR dead_at IS NOT NULL)

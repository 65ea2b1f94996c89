-- The rows that have these event ids: just what decides whether an enqueue was a repetition or a conflict.
SELECT event_id::text, sequence, pg_catalog.encode(digest, 'hex')
FROM {table}
WHERE event_id = ANY ($1::text[]::uuid[])

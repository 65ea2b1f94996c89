-- Record rows as published, each under its own lease. Returns the written ones, and only if some leases were lost.
WITH published AS (
    UPDATE {table} AS message
    SET published_at = now(), locked_at = NULL, lock_token = NULL, last_error = NULL
    FROM unnest($1::uuid[], $2::uuid[]) AS done (id, token)
    WHERE message.id = done.id AND message.lock_token = done.token
    RETURNING done.id, done.token
)
SELECT ARRAY(SELECT id FROM published), ARRAY(SELECT token FROM published)
WHERE (SELECT count(*) FROM published) < cardinality($1::uuid[])

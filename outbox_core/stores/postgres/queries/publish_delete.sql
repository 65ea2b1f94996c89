-- Delete rows acknowledged by the broker, each under its own lease. They come back only when others had lost theirs.
WITH published AS (
    DELETE FROM {table} AS message
    USING unnest($1::uuid[], $2::uuid[]) AS done (id, token)
    WHERE message.id = done.id AND message.lock_token = done.token
    RETURNING done.id, done.token
)
SELECT ARRAY(SELECT id FROM published), ARRAY(SELECT token FROM published)
WHERE (SELECT count(*) FROM published) < cardinality($1::uuid[])

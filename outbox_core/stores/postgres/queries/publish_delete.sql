-- Delete rows acknowledged by the broker, each under its own lease. Their ids come back only when others had lost theirs.
WITH published AS (
    DELETE FROM {table} AS message
    USING unnest($1::uuid[], $2::uuid[]) AS done (id, token)
    WHERE message.id = done.id AND message.lock_token = done.token
    RETURNING message.id
)
SELECT CASE WHEN count(*) < cardinality($1::uuid[]) THEN coalesce(array_agg(id), '{}') END FROM published

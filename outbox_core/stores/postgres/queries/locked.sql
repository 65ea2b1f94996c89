-- Rows that somebody else keeps locked at this moment. Those that are free are so again at once.
WITH free AS MATERIALIZED (
    SELECT id FROM {table} WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED
)
SELECT id FROM {table} WHERE id = ANY ($1::uuid[]) AND id NOT IN (SELECT id FROM free)

-- Rows that somebody else keeps locked at this moment. Those that are free are so again at once.
WITH nothing AS (
    -- Waits, as a write would, for whoever keeps the whole table: then it is no row's fault.
    UPDATE {table} SET lock_token = lock_token WHERE false RETURNING id
), free AS MATERIALIZED (
    SELECT id FROM {table} WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED
)
SELECT id FROM {table} WHERE id = ANY ($1::uuid[]) AND id NOT IN (SELECT id FROM free)

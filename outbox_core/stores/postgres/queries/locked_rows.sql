-- Rows that another session keeps locked at this moment. The free ones are free again at once.
WITH nothing AS (
    -- Waits, as a write would, for a session that locks the whole table: then no single row is locked.
    UPDATE {table} SET lock_token = lock_token WHERE false RETURNING id
), free AS MATERIALIZED (
    SELECT id FROM {table} WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED
)
SELECT id FROM {table} WHERE id = ANY ($1::uuid[]) AND id NOT IN (SELECT id FROM free)

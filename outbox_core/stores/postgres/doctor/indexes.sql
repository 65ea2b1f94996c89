-- The size of each index, and what its entries need: about 40 bytes each, and twice that where text is in it.
SELECT
    class.relname AS name,
    pg_relation_size(class.oid) AS bytes,
    format('REINDEX INDEX CONCURRENTLY %s.%I', '{schema}', class.relname) AS fix,
    greatest(class.reltuples, 0)::bigint * CASE WHEN class.relname = '{name}_key' THEN 100 ELSE 50 END + 65536 AS needed
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
WHERE index.indrelid = '{table}'::regclass AND index.indisvalid
ORDER BY name

-- How well the table is vacuumed.
SELECT
    coalesce(stat.n_live_tup, 0) AS live, coalesce(stat.n_dead_tup, 0) AS dead,
    greatest(stat.last_vacuum, stat.last_autovacuum) AS vacuumed_at,
    age(class.relfrozenxid) AS frozen_age,
    pg_table_size(class.oid) AS bytes,
    NOT EXISTS (
        SELECT
        FROM unnest(class.reloptions) AS option
        WHERE option IN ('autovacuum_enabled=false', 'autovacuum_enabled=off')
    ) AS autovacuum
FROM pg_class AS class
LEFT JOIN pg_stat_all_tables AS stat ON stat.relid = class.oid
WHERE class.oid = '{table}'::regclass

-- The database's clock, the transactions under way, and those that may have drawn a sequence of the table. Every
-- transaction that has an id holds a lock on it; a snapshot would not do, for it lists no transaction that is younger than
-- the last one that ended. A transaction that writes to the table, or draws from its sequence, locks it until its end.
SELECT
    now(),
    coalesce(
        array_agg(transactionid::text::bigint) FILTER (WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock'), '{}'
    ),
    coalesce(array_agg(virtualtransaction) FILTER (WHERE locktype = 'relation'), '{}')
FROM pg_locks
WHERE
    granted
    AND (
        locktype = 'transactionid'
        OR locktype = 'relation' AND mode = 'RowExclusiveLock'
        AND relation IN ('{table}'::regclass, to_regclass('{schema}."{name}_sequence_seq"'))
    )

-- The database's clock and the transactions running now. Every transaction that has an id holds a lock on it; a snapshot
-- would not do, for it lists no transaction that is younger than the last one that ended.
SELECT now(), ARRAY(
    SELECT transactionid::text::bigint
    FROM pg_locks
    WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
)

-- The database's clock and the transactions running now.
SELECT now(), ARRAY(SELECT running::text::bigint FROM pg_snapshot_xip(snapshot) AS running)
FROM (SELECT pg_current_snapshot() AS snapshot) AS look

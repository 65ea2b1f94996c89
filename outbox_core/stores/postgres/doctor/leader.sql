-- Who leads the table, who holds its lock, and whether anything waits to be delivered.
SELECT
    leader.holder, leader.term,
    extract(epoch FROM clock_timestamp() - leader.heartbeat_at)::float8 AS heartbeat_age,
    (
        SELECT count(*)
        FROM pg_locks
        WHERE
            locktype = 'advisory' AND objsubid = 1 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32 | objid::bigint) = $1::bigint
    ) AS locks,
    (
        SELECT count(*) FROM (
            SELECT FROM {table}
            WHERE published_at IS NULL AND dead_at IS NULL AND available_at <= now() - make_interval(secs => $2)
            ORDER BY available_at, sequence
            LIMIT 10001
        ) AS due
    ) AS due
FROM {schema}."outbox_leader" AS leader
WHERE leader.table_name = '{name}'

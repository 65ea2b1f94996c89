-- What keeps old row versions from being removed: transactions, prepared ones and slots, oldest first, each with the
-- statement that ends it.
SELECT kind, name, detail, extract(epoch FROM age)::float8 AS seconds, fix
FROM (
    SELECT
        CASE WHEN state LIKE 'idle in transaction%' THEN 'idle' ELSE 'transaction' END AS kind,
        pid::text AS name,
        concat_ws(', ', 'user ' || usename, nullif(application_name, ''), client_addr::text) AS detail,
        clock_timestamp() - xact_start AS age,
        format('SELECT pg_terminate_backend(%s)', pid) AS fix
    FROM pg_stat_activity
    WHERE
        datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
        AND backend_type = 'client backend'
        AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state LIKE 'idle in transaction%')
    UNION ALL
    SELECT
        'prepared', gid, 'user ' || owner, clock_timestamp() - prepared,
        format('ROLLBACK PREPARED %1$L -- or COMMIT PREPARED %1$L', gid)
    FROM pg_prepared_xacts
    WHERE database = current_database()
    UNION ALL
    SELECT
        'slot', slot_name::text,
        concat_ws(
            ', ', slot_type,
            CASE WHEN NOT pg_is_in_recovery() THEN
                pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) || ' of WAL kept for it'
            END
        ),
        NULL,
        format('SELECT pg_drop_replication_slot(%L)', slot_name)
    FROM pg_replication_slots
    WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL OR restart_lsn IS NOT NULL)
) AS holder
WHERE kind = 'slot' OR age > make_interval(secs => $1)
ORDER BY kind, age DESC NULLS LAST
LIMIT 20

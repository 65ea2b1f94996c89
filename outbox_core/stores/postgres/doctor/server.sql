-- The facts about the server and this session, in one statement.
SELECT
    current_setting('server_version_num')::int AS version,
    current_setting('server_version') AS version_text,
    pg_is_in_recovery() AS standby,
    current_setting('default_transaction_read_only')::boolean AS read_only,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS encrypted,
    host(inet_server_addr()) AS server_address,
    inet_server_addr() << '127.0.0.0/8' OR inet_server_addr() = '::1' AS local,
    current_setting('max_connections')::int AS max_connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    current_setting('autovacuum')::boolean AS autovacuum,
    current_setting('track_counts')::boolean AS track_counts,
    current_user AS role,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_everybody,
    format('GRANT pg_read_all_stats TO %I', current_user) AS see_everybody,
    pg_backend_pid() AS pid,
    clock_timestamp() AS now

-- End sessions of relays, of the same role, that have been sending this table's rows to a client that does not read.
-- OFFSET 0 keeps the planner from ending a session before it is known to be one of them.
SELECT pid, pg_terminate_backend(pid)
FROM (
    SELECT pid
    FROM pg_stat_activity
    WHERE
        application_name LIKE 'outbox:%'
        AND usename = current_user
        AND datname = current_database()
        AND pid <> pg_backend_pid()
        AND state = 'active' AND wait_event = 'ClientWrite'
        AND position($1 IN query) > 0
        AND state_change < clock_timestamp() - make_interval(secs => $2)
    OFFSET 0
) AS stuck

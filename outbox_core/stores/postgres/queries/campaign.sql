-- Begin a new term. Waits for a claim of the present leader to commit, since that holds the row.
UPDATE {schema}."outbox_leader"
SET holder = $1, term = term + 1, heartbeat_at = now()
WHERE
    table_name = '{name}'
    -- Who has the session lock leads at once; without one, the present leader must have fallen silent, or be this one.
    AND (
        $2::float8 IS NULL
        OR heartbeat_at IS NULL
        OR heartbeat_at < now() - make_interval(secs => $2)
        -- Of a server whose clock was ahead of this one's: nobody is to wait until that moment has come.
        OR heartbeat_at > now() + make_interval(secs => $2)
        OR holder = $1
    )
RETURNING term

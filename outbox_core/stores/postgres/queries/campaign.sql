-- Begin a new term. Waits for a claim of the present leader to commit, since that locks the row.
UPDATE {schema}."outbox_leader"
SET holder = $1, term = term + 1, heartbeat_at = now()
WHERE
    table_name = '{name}'
    -- The owner of the session lock leads at once; without one, the present leader must be silent, or be this relay.
    AND (
        $2::float8 IS NULL
        OR heartbeat_at IS NULL
        OR heartbeat_at < now() - make_interval(secs => $2)
        -- Written by a server whose clock was ahead of this one's: waiting for that moment would not help.
        OR heartbeat_at > now() + make_interval(secs => $2)
        OR holder = $1
    )
RETURNING term

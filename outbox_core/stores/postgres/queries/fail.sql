-- Reschedule or dead-letter rows, each under its own lease.
UPDATE {table} AS message
SET
    locked_at = NULL, lock_token = NULL,
    last_error = failed.error,
    attempts = greatest(message.attempts - failed.refund::int, 0),
    available_at = CASE
        WHEN failed.dead THEN message.available_at ELSE now() + make_interval(secs => failed.delay)
    END,
    dead_at = CASE WHEN failed.dead THEN now() END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::float8[], $5::boolean[], $6::boolean[])
    AS failed (id, token, error, delay, refund, dead)
WHERE message.id = failed.id AND message.lock_token = failed.token
RETURNING failed.id, failed.token

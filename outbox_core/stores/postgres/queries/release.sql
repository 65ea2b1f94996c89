-- Return rows undispatched, each under its own lease, attempts refunded.
UPDATE {table} AS message
SET
    locked_at = NULL, lock_token = NULL, attempts = greatest(attempts - 1, 0),
    available_at = CASE WHEN $3::boolean THEN clock_timestamp() ELSE available_at END
FROM unnest($1::uuid[], $2::uuid[]) AS released (id, token)
WHERE message.id = released.id AND message.lock_token = released.token
RETURNING released.id, released.token

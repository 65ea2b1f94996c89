-- Delete rows acknowledged by the broker, each under its own lease.
DELETE FROM {table} AS message
USING unnest($1::uuid[], $2::uuid[]) AS done (id, token)
WHERE message.id = done.id AND message.lock_token = done.token
RETURNING message.id

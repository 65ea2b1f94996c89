-- The leader lives.
UPDATE {schema}."outbox_leader"
SET heartbeat_at = now()
WHERE table_name = '{name}' AND term = $1
RETURNING term

-- The leader leaves; a newer term is not touched.
UPDATE {schema}."outbox_leader"
SET holder = NULL, heartbeat_at = NULL
WHERE table_name = '{name}' AND term = $1
RETURNING term

-- Whether the leader has been silent for so long that it is to be replaced. Waits for nobody who holds its row.
SELECT coalesce(bool_or(heartbeat_at < now() - make_interval(secs => $1)), false)
FROM {schema}."outbox_leader"
WHERE table_name = '{name}'

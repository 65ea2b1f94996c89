-- Whether the leader has been silent for so long that it is to be replaced, and whether the table has a row at all, without
-- which nobody can lead. Waits for nobody who holds that row.
SELECT coalesce(bool_or(heartbeat_at < now() - make_interval(secs => $1)), false), count(*) > 0
FROM {schema}."outbox_leader"
WHERE table_name = '{name}'

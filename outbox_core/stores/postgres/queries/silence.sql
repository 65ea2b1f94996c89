-- Two flags: the leader has been silent for so long that it must be replaced, and the table has a leader row at all,
-- without which no relay can lead. Waits for no lock on that row.
SELECT coalesce(bool_or(heartbeat_at < now() - make_interval(secs => $1)), false), count(*) > 0
FROM {schema}."outbox_leader"
WHERE table_name = '{name}'

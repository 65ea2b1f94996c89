-- Let the first unresolved message of a key go: a dead one is replayed, a waiting one is due now. A message in flight is
-- left alone.
WITH head AS MATERIALIZED (
    {include queries/head.sql}
), released AS (
    UPDATE {table} AS message
    SET
        dead_at = NULL,
        attempts = CASE WHEN dead_at IS NULL THEN attempts ELSE 0 END,
        last_error = CASE WHEN dead_at IS NULL THEN last_error END,
        replays = CASE WHEN dead_at IS NULL THEN replays ELSE replays + 1 END,
        available_at = CASE WHEN pg_current_xact_id() IS NOT NULL THEN clock_timestamp() END
    FROM head
    WHERE message.id = head.id AND message.published_at IS NULL AND message.lock_token IS NULL AND message.replays = 0
    RETURNING message.event_id
)
INSERT INTO {schema}."{name}_audit" AS audit (id, action, actor, reason, filter, as_of, planned, changed, finished_at)
SELECT $3::uuid, 'release', $4::text, $5::text, $6::text::jsonb, now(), 1, count(*), clock_timestamp()
FROM released
RETURNING
    {include queries/audit_columns.sql},
    (SELECT event_id FROM released),
    (SELECT pg_notify('outbox', $7::text)::text WHERE EXISTS (SELECT FROM released))

-- Replay the next messages of a plan, chosen by {moment}, and record it, in one step. Rows that have moved on since they
-- were looked at are left alone.
WITH
{include queries/letter_page.sql},
pace AS MATERIALIZED (
    -- The transaction id first, then the stamp: a relay that remembers how far it has read relies on that order.
    SELECT greatest(
        $12::timestamptz, CASE WHEN pg_current_xact_id() IS NOT NULL THEN clock_timestamp() END
    ) AS begins_at
), slots AS MATERIALIZED (
    SELECT
        page.id, page.moment,
        pace.begins_at
            + make_interval(secs => (row_number() OVER (ORDER BY page.moment, page.sequence) - 1) * $13::float8)
            AS available_at
    FROM page, pace
), replayed AS (
    UPDATE {table} AS message
    SET
        {moment} = NULL, attempts = 0, last_error = NULL, replays = message.replays + 1,
        available_at = slots.available_at
    FROM slots
    WHERE message.id = slots.id AND message.{moment} = slots.moment
    RETURNING message.id
)
UPDATE {schema}."{name}_audit" AS audit
SET
    batches = audit.batches + 1,
    changed = audit.changed + (SELECT count(*) FROM replayed),
    cursor_at = coalesce((SELECT moment FROM last), audit.cursor_at),
    cursor_sequence = coalesce((SELECT sequence FROM last), audit.cursor_sequence),
    paced_until = (SELECT begins_at FROM pace) + make_interval(secs => (SELECT count(*) FROM page) * $13::float8),
    finished_at = CASE WHEN $4 IS NOT NULL OR (SELECT count(*) FROM page) < 500 THEN clock_timestamp() END
FROM turn
WHERE audit.id = turn.id
RETURNING
    {include queries/audit_columns.sql},
    (SELECT pg_notify('outbox', $14::text)::text WHERE EXISTS (SELECT FROM replayed))

-- Replay the next published messages of a plan and record it, in one step. Rows that have moved on since they were
-- looked at are left alone.
WITH turn AS MATERIALIZED (
    -- Whoever carries out the same plan at this moment, or has done this batch already, leaves nothing to do here.
    SELECT id
    FROM {schema}."{name}_audit"
    WHERE id = $8 AND batches = $9 AND finished_at IS NULL
    FOR UPDATE SKIP LOCKED
), page AS MATERIALIZED (
    (
        SELECT id, published_at AS moment, sequence
        FROM {table}
        WHERE
            $4::uuid[] IS NULL AND EXISTS (SELECT FROM turn)
            AND published_at IS NOT NULL
            AND (published_at, sequence) > ($10::timestamptz, $11::bigint)
            AND published_at >= coalesce($5::timestamptz, '-infinity') AND published_at < coalesce($6::timestamptz, 'infinity')
            AND published_at <= $7::timestamptz
            AND
{include queries/letter_filter.sql}
        ORDER BY published_at, sequence
        LIMIT 500
    )
    UNION ALL
    (
        SELECT id, published_at AS moment, sequence
        FROM {table}
        WHERE
            event_id = ANY ($4) AND EXISTS (SELECT FROM turn)
            AND published_at >= coalesce($5::timestamptz, '-infinity') AND published_at < coalesce($6::timestamptz, 'infinity')
            AND published_at <= $7::timestamptz
            AND
{include queries/letter_filter.sql}
    )
), last AS MATERIALIZED (
    SELECT moment, sequence FROM page ORDER BY moment DESC, sequence DESC LIMIT 1
), pace AS MATERIALIZED (
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
        published_at = NULL, attempts = 0, last_error = NULL, replays = message.replays + 1,
        available_at = slots.available_at
    FROM slots
    WHERE message.id = slots.id AND message.published_at = slots.moment
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

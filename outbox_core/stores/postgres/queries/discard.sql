-- Delete the next dead letters of a plan and record it, in one step. Rows that have moved on since they were looked at are
-- left alone.
WITH turn AS MATERIALIZED (
    -- Whoever carries out the same plan at this moment, or has done this batch already, leaves nothing to do here.
    SELECT id
    FROM {schema}."{name}_audit"
    WHERE id = $8 AND batches = $9 AND finished_at IS NULL
    FOR UPDATE SKIP LOCKED
), page AS MATERIALIZED (
    (
        SELECT id, dead_at AS moment, sequence
        FROM {table}
        WHERE
            $4::uuid[] IS NULL AND EXISTS (SELECT FROM turn)
            AND dead_at IS NOT NULL
            AND (dead_at, sequence) > ($10::timestamptz, $11::bigint)
            AND dead_at >= coalesce($5::timestamptz, '-infinity') AND dead_at < coalesce($6::timestamptz, 'infinity')
            AND dead_at <= $7::timestamptz
            AND
{include queries/letter_filter.sql}
        ORDER BY dead_at, sequence
        LIMIT 500
    )
    UNION ALL
    (
        SELECT id, dead_at AS moment, sequence
        FROM {table}
        WHERE
            event_id = ANY ($4) AND EXISTS (SELECT FROM turn)
            AND dead_at >= coalesce($5::timestamptz, '-infinity') AND dead_at < coalesce($6::timestamptz, 'infinity')
            AND dead_at <= $7::timestamptz
            AND
{include queries/letter_filter.sql}
    )
), last AS MATERIALIZED (
    SELECT moment, sequence FROM page ORDER BY moment DESC, sequence DESC LIMIT 1
), discarded AS (
    DELETE FROM {table} WHERE id = ANY (ARRAY(SELECT id FROM page)) AND dead_at <= $7 RETURNING id
)
UPDATE {schema}."{name}_audit" AS audit
SET
    batches = audit.batches + 1,
    changed = audit.changed + (SELECT count(*) FROM discarded),
    cursor_at = coalesce((SELECT moment FROM last), audit.cursor_at),
    cursor_sequence = coalesce((SELECT sequence FROM last), audit.cursor_sequence),
    finished_at = CASE WHEN $4 IS NOT NULL OR (SELECT count(*) FROM page) < 500 THEN clock_timestamp() END
FROM turn
WHERE audit.id = turn.id
RETURNING
    {include queries/audit_columns.sql}

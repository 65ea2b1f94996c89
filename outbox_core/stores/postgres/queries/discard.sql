-- Delete the next dead letters of a plan and record it, in one step. Rows that have moved on since they were looked at are
-- left alone.
WITH
{include queries/letter_page.sql moment=dead_at},
discarded AS (
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

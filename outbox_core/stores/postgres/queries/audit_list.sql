-- The audit, newest first: ids are made in the order of time.
SELECT
    {include queries/audit_columns.sql}
FROM {schema}."{name}_audit" AS audit
WHERE $1::boolean IS FALSE OR finished_at IS NULL
ORDER BY id DESC
LIMIT $2

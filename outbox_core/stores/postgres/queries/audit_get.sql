-- One record of the audit.
SELECT
    {include queries/audit_columns.sql}
FROM {schema}."{name}_audit" AS audit
WHERE id = $1

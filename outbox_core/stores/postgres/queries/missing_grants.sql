-- What a relay needs and this role was not granted, as GRANT would have it. Reads the catalog, which every role may.
WITH needed (relation, privilege, columns) AS (
    VALUES
        ($2::text, 'SELECT', NULL::text[]),
        ($2::text, 'UPDATE', ARRAY[
            'published_at', 'attempts', 'available_at', 'locked_at', 'lock_token', 'last_error', 'dead_at', 'replays'
        ]),
        ($2::text, 'DELETE', NULL),
        ('outbox_leader', 'SELECT', NULL),
        ('outbox_leader', 'UPDATE', ARRAY['holder', 'term', 'heartbeat_at'])
),
granted AS (
    SELECT needed.relation, needed.privilege, needed.columns IS NULL AS whole,
        has_table_privilege(found.oid, needed.privilege) AS at_once,
        (
            SELECT string_agg(format('%I', attribute.attname), ', ' ORDER BY attribute.attname)
            FROM pg_catalog.pg_attribute AS attribute
            WHERE attribute.attrelid = found.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
                AND (needed.columns IS NULL OR attribute.attname = ANY (needed.columns))
                AND needed.privilege <> 'DELETE'
                AND NOT has_column_privilege(found.oid, attribute.attnum, needed.privilege)
        ) AS lacking
    FROM needed
    JOIN pg_catalog.pg_namespace AS space ON space.nspname = $1::text
    JOIN pg_catalog.pg_class AS found ON found.relnamespace = space.oid AND found.relname = needed.relation
)
SELECT format('USAGE ON SCHEMA %I', nspname) AS missing
FROM pg_catalog.pg_namespace
WHERE nspname = $1::text AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL
SELECT format('%s%s ON %I.%I', privilege, CASE WHEN NOT whole THEN ' (' || lacking || ')' END, $1::text, relation)
FROM granted
WHERE NOT at_once AND (lacking IS NOT NULL OR privilege = 'DELETE')

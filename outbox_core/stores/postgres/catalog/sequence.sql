-- What the catalog says of one sequence and of the column that owns it; no row when there is no such sequence.
SELECT json_build_object(
    'type', format_type(s.seqtypid, NULL),
    'increment', s.seqincrement,
    'cache', s.seqcache,
    'cycle', s.seqcycle,
    'maximum', s.seqmax,
    'persistence', c.relpersistence,
    'owner', (
        SELECT format('%s.%s.%s', tn.nspname, t.relname, a.attname)
        FROM pg_depend p
        JOIN pg_class t ON t.oid = p.refobjid
        JOIN pg_namespace tn ON tn.oid = t.relnamespace
        JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = p.refobjsubid
        WHERE p.classid = 'pg_class'::regclass AND p.objid = c.oid
          AND p.refclassid = 'pg_class'::regclass AND p.deptype = 'a'
    )
)::text
FROM pg_sequence s
JOIN pg_class c ON c.oid = s.seqrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text

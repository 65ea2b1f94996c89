-- What the catalog says of one relation, as one JSON text; no row when there is no such relation.
-- Reads pg_catalog only, so any role may run it. Wants search_path = pg_catalog, so that names come out qualified.
WITH relation AS (
    SELECT c.oid, c.relname, n.nspname, c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
        c.reloptions
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
), columns AS (
    SELECT json_object_agg(a.attname, json_build_object(
        'type', format_type(a.atttypid, a.atttypmod)
            || CASE WHEN a.attcollation <> t.typcollation THEN ' COLLATE ' || l.collname ELSE '' END,
        'nullable', NOT a.attnotnull OR EXISTS ( -- since 18 NOT NULL can be NOT VALID
            SELECT FROM pg_constraint k
            WHERE k.conrelid = r.oid AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated
        ),
        'default', CASE
            WHEN a.attidentity <> '' THEN 'identity'
            ELSE replace(
                pg_get_expr(d.adbin, d.adrelid),
                format('%I.%I', r.nspname, r.relname || '_sequence_seq'),
                '<sequence>'
            )
        END
    ) ORDER BY a.attnum) AS facts
    FROM relation r
    JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
), constraints AS (
    SELECT json_object_agg(k.conname, json_build_object(
        'kind', k.contype,
        'definition', pg_get_constraintdef(k.oid)
    )) AS facts
    FROM relation r
    JOIN pg_constraint k ON k.conrelid = r.oid AND k.contype IN ('c', 'p', 'u', 'x')
), indexes AS (
    SELECT json_object_agg(i.relname, json_build_object(
        'definition', CASE WHEN x.indisunique THEN 'UNIQUE ' ELSE '' END
            || substring(pg_get_indexdef(i.oid) FROM ' USING (.*)$'),
        'unique', x.indisunique,
        'valid', x.indisvalid AND x.indisready,
        'constraint', EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.oid AND k.conrelid = r.oid),
        'summarizing', m.amname = 'brin' AND current_setting('server_version_num')::int >= 160000,
        'columns', ARRAY(
            SELECT DISTINCT a.attname
            FROM pg_depend p
            JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = p.refobjsubid
            WHERE p.classid = 'pg_class'::regclass AND p.objid = i.oid
              AND p.refclassid = 'pg_class'::regclass AND p.refobjid = r.oid
        )
    )) AS facts
    FROM relation r
    JOIN pg_index x ON x.indrelid = r.oid
    JOIN pg_class i ON i.oid = x.indexrelid
    JOIN pg_am m ON m.oid = i.relam
), parameters AS (
    SELECT json_object_agg(o.option_name, o.option_value) AS facts
    FROM relation r, pg_options_to_table(r.reloptions) o
), rules AS (
    SELECT json_object_agg(
        w.rulename, CASE w.ev_type WHEN '2' THEN 'UPDATE' WHEN '3' THEN 'INSERT' ELSE 'DELETE' END
    ) AS facts
    FROM relation r
    JOIN pg_rewrite w ON w.ev_class = r.oid AND w.ev_type IN ('2', '3', '4') AND w.ev_enabled IN ('O', 'A')
), triggers AS ( -- of tgtype the bits 1, 2 and 4 are FOR EACH ROW, BEFORE and INSERT
    SELECT json_agg(g.tgname ORDER BY g.tgname) AS facts
    FROM relation r
    JOIN pg_trigger g ON g.tgrelid = r.oid AND NOT g.tgisinternal
        AND g.tgtype & 7 = 7 AND g.tgenabled IN ('O', 'A')
), children AS (
    SELECT json_agg(h.inhrelid::regclass::text ORDER BY h.inhrelid::regclass::text) AS facts
    FROM relation r
    JOIN pg_inherits h ON h.inhparent = r.oid AND r.relkind = 'r'
)
SELECT json_build_object(
    'kind', r.relkind,
    'persistence', r.relpersistence,
    'row_security', r.relrowsecurity,
    'row_security_forced', r.relforcerowsecurity,
    'columns', coalesce((SELECT facts FROM columns), '{}'),
    'constraints', coalesce((SELECT facts FROM constraints), '{}'),
    'indexes', coalesce((SELECT facts FROM indexes), '{}'),
    'parameters', coalesce((SELECT facts FROM parameters), '{}'),
    'rules', coalesce((SELECT facts FROM rules), '{}'),
    'insert_triggers', coalesce((SELECT facts FROM triggers), '[]'),
    'children', coalesce((SELECT facts FROM children), '[]')
)::text
FROM relation r

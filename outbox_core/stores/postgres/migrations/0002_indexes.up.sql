-- 0002 indexes: the partial indexes of the claim, key order, the cleaner, tenants and dead letters.
-- Must run outside a transaction, statement by statement (an empty line ends each). Can be repeated after any failure.
-- Locks: SHARE UPDATE EXCLUSIVE on the table: enqueue, claims and completions go on. Only an invalid index that a failed
-- attempt left is dropped under ACCESS EXCLUSIVE, for lock_timeout at most.
SET lock_timeout = '{lock_timeout}';

DO $$
DECLARE
    left_over text;
BEGIN
    FOR left_over IN
        SELECT pg_catalog.format('%I.%I', n.nspname, i.relname)
        FROM pg_catalog.pg_index x
        JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = i.relnamespace
        WHERE x.indrelid = '{table}'::pg_catalog.regclass
          AND NOT x.indisvalid
          AND i.relname IN (
              '{name}_pending', '{name}_key', '{name}_cleaner', '{name}_tenant', '{name}_dead', '{name}_dead_key'
          )
    LOOP
        EXECUTE 'DROP INDEX ' || left_over;
    END LOOP;
END
$$;

-- A concurrent build waits for transactions older than itself and blocks nobody meanwhile: no lock_timeout for it.
SET lock_timeout = 0;

-- The claim: what is due, oldest first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{name}_pending" ON {table} (available_at, sequence)
    WHERE published_at IS NULL AND dead_at IS NULL;

-- Order per key. Without the dead, so that a claim does not pay for each of them that a key has.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{name}_key" ON {table} (tenant_id, key, sequence)
    WHERE key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL;

-- The cleaner: what was published longest ago.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{name}_cleaner" ON {table} (published_at, sequence)
    WHERE published_at IS NOT NULL;

-- One tenant's unpublished messages: counted and listed.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{name}_tenant" ON {table} (tenant_id, sequence)
    WHERE published_at IS NULL;

-- Dead letters, by when they died.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{name}_dead" ON {table} (dead_at, sequence)
    WHERE dead_at IS NOT NULL;

-- Dead letters that can hold their key.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{name}_dead_key" ON {table} (tenant_id, key, sequence)
    WHERE key IS NOT NULL AND dead_at IS NOT NULL AND replays = 0;

INSERT INTO {schema}."outbox_schema_version" (table_name, version) VALUES ('{name}', 2)
ON CONFLICT (table_name) DO UPDATE SET version = EXCLUDED.version, applied_at = EXCLUDED.applied_at;

RESET lock_timeout;

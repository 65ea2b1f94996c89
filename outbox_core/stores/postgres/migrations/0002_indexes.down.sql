-- 0002 indexes, undone. A relay still works without them, but every claim reads the whole table.
-- Must run outside a transaction, statement by statement (an empty line ends each). Can be repeated after any failure.
-- Locks: SHARE UPDATE EXCLUSIVE on the table: enqueue, claims and completions go on.
SET lock_timeout = 0;

DROP INDEX CONCURRENTLY IF EXISTS {schema}."{name}_pending";

DROP INDEX CONCURRENTLY IF EXISTS {schema}."{name}_key";

DROP INDEX CONCURRENTLY IF EXISTS {schema}."{name}_cleaner";

DROP INDEX CONCURRENTLY IF EXISTS {schema}."{name}_tenant";

DROP INDEX CONCURRENTLY IF EXISTS {schema}."{name}_dead";

DROP INDEX CONCURRENTLY IF EXISTS {schema}."{name}_dead_key";

UPDATE {schema}."outbox_schema_version" SET version = 1, applied_at = pg_catalog.now() WHERE table_name = '{name}';

RESET lock_timeout;

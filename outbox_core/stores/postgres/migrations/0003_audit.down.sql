-- 0003 audit, undone: the record of what operators did to messages is lost. Needs one transaction.
-- Locks: ACCESS EXCLUSIVE on the audit table alone, for lock_timeout at most: enqueue, claims and completions go on.
SET LOCAL lock_timeout = '{lock_timeout}';

SELECT pg_catalog.pg_advisory_xact_lock({schema_lock});

DROP TABLE IF EXISTS {schema}."{name}_audit";

UPDATE {schema}."outbox_schema_version" SET version = 2, applied_at = pg_catalog.now() WHERE table_name = '{name}';

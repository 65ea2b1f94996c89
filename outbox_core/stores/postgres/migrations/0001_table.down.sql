-- 0001 table, undone: the outbox table and every message in it; with the schema's last outbox, the shared tables too.
-- Needs one transaction.
-- Locks: ACCESS EXCLUSIVE on the table, so enqueue waits for it; for lock_timeout at most, then this gives up.
SET LOCAL lock_timeout = '{lock_timeout}';

SELECT pg_catalog.pg_advisory_xact_lock({schema_lock});

DROP TABLE IF EXISTS {table};

DELETE FROM {schema}."outbox_leader" WHERE table_name = '{name}';

DELETE FROM {schema}."outbox_schema_version" WHERE table_name = '{name}';

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}."outbox_schema_version") THEN
        DROP TABLE {schema}."outbox_leader", {schema}."outbox_schema_version";
    END IF;
END
$$;

-- 0003 audit: the record of what operators did to messages. Needs one transaction.
-- Locks: nothing that existed before is locked; the advisory lock keeps two installers of one schema apart.
SET LOCAL lock_timeout = '{lock_timeout}';

SELECT pg_catalog.pg_advisory_xact_lock({schema_lock});

-- Who replayed, discarded, released, postponed or cleaned messages, when and why, and how far they got. Kept when the
-- outbox table is dropped by hand and made again. One row is updated with every batch: the free space keeps that on its
-- page (HOT).
CREATE TABLE IF NOT EXISTS {schema}."{name}_audit" (
    id              uuid             NOT NULL,
    action          text             NOT NULL,
    actor           text             NOT NULL,
    reason          text             NOT NULL,
    filter          jsonb            NOT NULL,
    as_of           timestamptz      NOT NULL,
    planned         bigint           NOT NULL,
    changed         bigint           NOT NULL DEFAULT 0,
    rate            double precision NULL,
    batches         integer          NOT NULL DEFAULT 0,
    cursor_at       timestamptz      NULL,
    cursor_sequence bigint           NULL,
    paced_until     timestamptz      NULL,
    started_at      timestamptz      NOT NULL DEFAULT pg_catalog.now(),
    finished_at     timestamptz      NULL,
    CONSTRAINT "{name}_audit_pkey" PRIMARY KEY (id),
    CONSTRAINT "{name}_audit_check" CHECK (
        action IN ('replay', 'discard', 'release', 'postpone', 'clean') AND planned >= 0 AND changed >= 0
    )
) WITH (fillfactor = 50);

UPDATE {schema}."outbox_schema_version" SET version = 3, applied_at = pg_catalog.now() WHERE table_name = '{name}';

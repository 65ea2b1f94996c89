-- The whole schema at its current version, for a table that does not exist yet. Needs one transaction.
-- Locks: nothing that existed before is locked; the advisory lock keeps two installers of one schema apart.
SET LOCAL lock_timeout = '2000ms';

SELECT pg_catalog.pg_advisory_xact_lock(2292863316865476847);

-- CREATE SCHEMA IF NOT EXISTS would need CREATE on the database even where the schema exists.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE pg_catalog.format('"%s"', nspname) = '"public"') THEN
        CREATE SCHEMA "public";
    END IF;
END
$$;

-- Once per schema: which version each outbox table is at, and who leads its relays.
CREATE TABLE IF NOT EXISTS "public"."outbox_schema_version" (
    table_name text        NOT NULL,
    version    integer     NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    CONSTRAINT "outbox_schema_version_pkey" PRIMARY KEY (table_name)
);

-- A heartbeat updates one small row every few seconds: the free space keeps those updates on its page (HOT).
CREATE TABLE IF NOT EXISTS "public"."outbox_leader" (
    table_name   text        NOT NULL,
    holder       text        NULL,
    term         bigint      NOT NULL DEFAULT 0,
    heartbeat_at timestamptz NULL,
    CONSTRAINT "outbox_leader_pkey" PRIMARY KEY (table_name)
) WITH (fillfactor = 10);

CREATE SEQUENCE "public"."tickets_outbox_sequence_seq" AS bigint;

CREATE TABLE "public"."tickets_outbox" (
    id           uuid        NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
    tenant_id    uuid        NOT NULL,
    topic        text        NOT NULL,
    payload      jsonb       NULL,
    body         bytea       NULL,
    content_type text        NULL,
    event_id     uuid        NOT NULL,
    sequence     bigint      NOT NULL DEFAULT pg_catalog.nextval('"public"."tickets_outbox_sequence_seq"'),
    created_at   timestamptz NOT NULL DEFAULT pg_catalog.now(),
    published_at timestamptz NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    locked_at    timestamptz NULL,
    last_error   text        NULL,
    key          text        NULL,
    headers      jsonb       NULL,
    traceparent  text        NULL,
    tracestate   text        NULL,
    digest       bytea       NOT NULL,
    lock_token   uuid        NULL,
    dead_at      timestamptz NULL,
    replays      integer     NOT NULL DEFAULT 0,
    CONSTRAINT "tickets_outbox_pkey" PRIMARY KEY (id),
    CONSTRAINT "tickets_outbox_event_id_key" UNIQUE (event_id),
    CONSTRAINT "tickets_outbox_content_check" CHECK (pg_catalog.num_nonnulls(payload, body) = 1),
    CONSTRAINT "tickets_outbox_type_check" CHECK (content_type IS NULL OR body IS NOT NULL),
    CONSTRAINT "tickets_outbox_digest_check" CHECK (pg_catalog.octet_length(digest) = 32),
    CONSTRAINT "tickets_outbox_attempts_check" CHECK (attempts >= 0),
    CONSTRAINT "tickets_outbox_replays_check" CHECK (replays >= 0),
    -- pending, in flight, published, dead: nothing else is legal
    CONSTRAINT "tickets_outbox_state_check" CHECK (
           (published_at IS NULL     AND dead_at IS NULL     AND locked_at IS NULL     AND lock_token IS NULL)
        OR (published_at IS NULL     AND dead_at IS NULL     AND locked_at IS NOT NULL AND lock_token IS NOT NULL)
        OR (published_at IS NOT NULL AND dead_at IS NULL     AND locked_at IS NULL     AND lock_token IS NULL)
        OR (published_at IS NULL     AND dead_at IS NOT NULL AND locked_at IS NULL     AND lock_token IS NULL)
    )
) WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

ALTER SEQUENCE "public"."tickets_outbox_sequence_seq" OWNED BY "public"."tickets_outbox".sequence;

-- The claim: what is due, oldest first.
CREATE INDEX "tickets_outbox_pending" ON "public"."tickets_outbox" (available_at, sequence) WHERE published_at IS NULL AND dead_at IS NULL;

-- Order per key. Without the dead, so that a claim does not pay for each of them that a key has.
CREATE INDEX "tickets_outbox_key" ON "public"."tickets_outbox" (tenant_id, key, sequence)
    WHERE key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL;

-- The cleaner: what was published longest ago.
CREATE INDEX "tickets_outbox_cleaner" ON "public"."tickets_outbox" (published_at, sequence) WHERE published_at IS NOT NULL;

-- One tenant's unpublished messages: counted and listed.
CREATE INDEX "tickets_outbox_tenant" ON "public"."tickets_outbox" (tenant_id, sequence) WHERE published_at IS NULL;

-- Dead letters, by when they died.
CREATE INDEX "tickets_outbox_dead" ON "public"."tickets_outbox" (dead_at, sequence) WHERE dead_at IS NOT NULL;

-- Dead letters that can hold their key.
CREATE INDEX "tickets_outbox_dead_key" ON "public"."tickets_outbox" (tenant_id, key, sequence)
    WHERE key IS NOT NULL AND dead_at IS NOT NULL AND replays = 0;

-- Who replayed, discarded, released, postponed or cleaned messages, when and why, and how far they got. Kept when the
-- outbox table is dropped by hand and made again. One row is updated with every batch: the free space keeps that on its
-- page (HOT).
CREATE TABLE IF NOT EXISTS "public"."tickets_outbox_audit" (
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
    CONSTRAINT "tickets_outbox_audit_pkey" PRIMARY KEY (id),
    CONSTRAINT "tickets_outbox_audit_check" CHECK (
        action IN ('replay', 'discard', 'release', 'postpone', 'clean') AND planned >= 0 AND changed >= 0
    )
) WITH (fillfactor = 50);

INSERT INTO "public"."outbox_leader" (table_name) VALUES ('tickets_outbox') ON CONFLICT (table_name) DO NOTHING;

INSERT INTO "public"."outbox_schema_version" (table_name, version) VALUES ('tickets_outbox', 3)
ON CONFLICT (table_name) DO UPDATE SET version = EXCLUDED.version, applied_at = EXCLUDED.applied_at;

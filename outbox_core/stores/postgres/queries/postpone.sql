-- Set when waiting messages are due. Messages in flight, published or dead are left alone.
WITH postponed AS (
    UPDATE {table}
    SET available_at = CASE
        WHEN pg_current_xact_id() IS NOT NULL THEN greatest(
            clock_timestamp(), coalesce($2::timestamptz, clock_timestamp() + make_interval(secs => $3::float8))
        )
    END
    WHERE event_id = ANY ($1::uuid[]) AND published_at IS NULL AND dead_at IS NULL AND lock_token IS NULL
    RETURNING id
)
INSERT INTO {schema}."{name}_audit" AS audit (id, action, actor, reason, filter, as_of, planned, changed, finished_at)
SELECT $4::uuid, 'postpone', $5::text, $6::text, $7::text::jsonb, now(), $8::bigint, count(*), clock_timestamp()
FROM postponed
RETURNING
    {include queries/audit_columns.sql},
    (SELECT pg_notify('outbox', $9::text)::text WHERE EXISTS (SELECT FROM postponed))

-- How a table stands, at a cost that does not grow with it: every count stops at a limit and reads an index alone as far as
-- the table is vacuumed, and only a limited number of the first rows is read.
WITH first AS MATERIALIZED (
    (
        SELECT true AS is_due, locked_at, last_error, topic, available_at, created_at
        FROM {table}
        WHERE published_at IS NULL AND dead_at IS NULL AND available_at <= now()
        ORDER BY available_at, sequence
        LIMIT $2
    )
    UNION ALL
    (
        SELECT false, locked_at, last_error, topic, available_at, created_at
        FROM {table}
        WHERE published_at IS NULL AND dead_at IS NULL AND available_at > now()
        ORDER BY available_at, sequence
        LIMIT $2
    )
),
looked_into AS (
    SELECT
        count(*) FILTER (WHERE is_due) AS due,
        count(*) FILTER (WHERE NOT is_due) AS waiting,
        count(locked_at) AS locked,
        count(*) FILTER (WHERE locked_at IS NULL AND last_error ~ '^PROVIDER\.(UNAVAILABLE|REFUSED)\M') AS away,
        -- Since it was due if it was never tried. The times of a row edited by hand may be beyond what can be subtracted.
        min(greatest(CASE WHEN last_error IS NULL THEN available_at ELSE created_at END, '0001-01-02Z'))
            FILTER (WHERE is_due OR last_error IS NOT NULL) AS since
    FROM first
),
away AS (
    SELECT topic
    FROM first
    WHERE locked_at IS NULL AND last_error ~ '^PROVIDER\.(UNAVAILABLE|REFUSED)\M'
    GROUP BY topic
    LIMIT 5
)
SELECT
    now() AS at,
    (
        SELECT count(*) FROM (
            SELECT FROM {table} WHERE published_at IS NULL AND dead_at IS NULL AND available_at <= now()
            ORDER BY available_at, sequence LIMIT $1::bigint + 1
        ) AS counted
    ) AS due,
    (
        SELECT count(*) FROM (
            SELECT FROM {table} WHERE published_at IS NULL AND dead_at IS NULL AND available_at > now()
            ORDER BY available_at, sequence LIMIT $1::bigint + 1
        ) AS counted
    ) AS waiting,
    (
        SELECT count(*) FROM (
            SELECT FROM {table} WHERE dead_at IS NOT NULL ORDER BY dead_at, sequence LIMIT $1::bigint + 1
        ) AS counted
    ) AS dead,
    (
        SELECT count(*) FROM (
            SELECT FROM {table}
            WHERE published_at IS NOT NULL AND published_at > now() - make_interval(secs => $3)
            ORDER BY published_at, sequence LIMIT $1::bigint + 1
        ) AS counted
    ) AS published_recently,
    looked_into.due AS due_looked_into,
    looked_into.waiting AS waiting_looked_into,
    looked_into.locked,
    looked_into.away,
    ARRAY(SELECT topic FROM away ORDER BY topic) AS away_topics,
    extract(epoch FROM now() - CASE WHEN since > now() THEN now() ELSE since END)::float8 AS oldest_pending_age,
    -- Not everybody who may look may read the sequence; the statistics are free to all, though a little late.
    CASE
        WHEN has_sequence_privilege('{schema}."{name}_sequence_seq"', 'SELECT, USAGE')
        THEN coalesce(pg_sequence_last_value('{schema}."{name}_sequence_seq"'), 0)
        ELSE coalesce(pg_stat_get_tuples_inserted('{table}'::regclass), 0)
    END AS written,
    leader.term,
    leader.holder,
    extract(epoch FROM now() - leader.heartbeat_at)::float8 AS heartbeat_age
FROM looked_into
LEFT JOIN {schema}."outbox_leader" AS leader ON leader.table_name = '{name}'

-- Delete published rows older than the retention, oldest first, from a place on: what was deleted before it is in the
-- index until a vacuum, and is not read again. A row that is being replayed is passed over, and the DELETE looks again.
WITH turn AS MATERIALIZED (
    -- A delete that a crash of the server takes back is done again: no need to make writers wait for one more flush.
    SELECT pg_try_advisory_xact_lock($1) AND set_config('synchronous_commit', 'off', true) = 'off' AS ours
), page AS MATERIALIZED (
    SELECT id, published_at, sequence
    FROM {table}
    WHERE
        published_at IS NOT NULL
        AND (published_at, sequence) > ($2::timestamptz, $3::bigint)
        AND published_at < now() - make_interval(secs => $4)
        AND (SELECT ours FROM turn)
    ORDER BY published_at, sequence
    LIMIT $5
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table}
    WHERE id = ANY (ARRAY(SELECT id FROM page)) AND published_at < now() - make_interval(secs => $4)
    RETURNING id
)
SELECT
    (SELECT ours FROM turn), (SELECT count(*) FROM page), (SELECT count(*) FROM deleted), last.published_at, last.sequence
FROM (SELECT) AS always
LEFT JOIN (SELECT published_at, sequence FROM page ORDER BY published_at DESC, sequence DESC LIMIT 1) AS last ON true

-- What a plan would change, by topic and by how many of the given windows (in seconds, ascending) each message is older
-- than. One row with the clock comes in any case.
SELECT
    clock.as_of, topic,
    width_bucket(extract(epoch FROM clock.as_of - created_at)::float8, $7::float8[]) AS windows_exceeded,
    count(topic), min(moment), max(moment)
FROM (SELECT now() AS as_of) AS clock
LEFT JOIN (
    SELECT topic, created_at, {moment} AS moment
    FROM {table}
    WHERE
        $4::uuid[] IS NULL
        AND {moment} >= coalesce($5::timestamptz, '-infinity') AND {moment} < coalesce($6::timestamptz, 'infinity')
        AND
{include queries/letter_filter.sql}
    UNION ALL
    -- A few messages by their ids are looked up, not searched for.
    SELECT topic, created_at, {moment} AS moment
    FROM {table}
    WHERE
        event_id = ANY ($4)
        AND {moment} >= coalesce($5::timestamptz, '-infinity') AND {moment} < coalesce($6::timestamptz, 'infinity')
        AND
{include queries/letter_filter.sql}
) AS selected ON true
GROUP BY clock.as_of, topic, windows_exceeded

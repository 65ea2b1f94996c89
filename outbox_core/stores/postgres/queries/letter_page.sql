-- The next messages of a plan, by {moment}, for the session that has the turn to carry it out.
turn AS MATERIALIZED (
    -- Another session that carries out the same plan now, or has done this batch already, leaves nothing to do here.
    SELECT id
    FROM {schema}."{name}_audit"
    WHERE id = $8 AND batches = $9 AND finished_at IS NULL
    FOR UPDATE SKIP LOCKED
), page AS MATERIALIZED (
    (
        SELECT id, {moment} AS moment, sequence
        FROM {table}
        WHERE
            $4::uuid[] IS NULL AND EXISTS (SELECT FROM turn)
            AND {moment} IS NOT NULL
            AND ({moment}, sequence) > ($10::timestamptz, $11::bigint)
            AND {moment} >= coalesce($5::timestamptz, '-infinity') AND {moment} < coalesce($6::timestamptz, 'infinity')
            AND {moment} <= $7::timestamptz
            AND
{include queries/letter_filter.sql}
        ORDER BY {moment}, sequence
        LIMIT 500
    )
    UNION ALL
    (
        SELECT id, {moment} AS moment, sequence
        FROM {table}
        WHERE
            event_id = ANY ($4) AND EXISTS (SELECT FROM turn)
            AND {moment} >= coalesce($5::timestamptz, '-infinity') AND {moment} < coalesce($6::timestamptz, 'infinity')
            AND {moment} <= $7::timestamptz
            AND
{include queries/letter_filter.sql}
    )
), last AS MATERIALIZED (
    SELECT moment, sequence FROM page ORDER BY moment DESC, sequence DESC LIMIT 1
)

-- The end of every claim: lease the picked rows.
UPDATE {table}
SET locked_at = now(), lock_token = $2, attempts = least(attempts, 2147483646) + 1,
    -- The owner before crashed or froze: that stays on record until an attempt has an outcome.
    last_error = CASE WHEN locked_at IS NULL THEN last_error ELSE 'TX.LEASE the lease before ended without an outcome' END
WHERE ctid = ANY (ARRAY(SELECT tid FROM picked))
RETURNING
    id, tenant_id, topic,
    CASE WHEN {without_content}::boolean THEN '' ELSE coalesce(body, convert_to(payload::text, 'UTF8')) END,
    coalesce(content_type, 'application/json'),
    event_id, sequence,
    -- Within the years that Python knows, so that a row edited by hand cannot stop the others. As numbers, which the
    -- driver reads twenty times as fast as times; before 1700 they are not exact to the microsecond.
    date_part('epoch', greatest(least(created_at, '9999-12-30Z'), '0001-01-02Z')), attempts,
    date_part('epoch', greatest(least(available_at, '9999-12-30Z'), '1700-01-01Z')), key,
    CASE WHEN NOT {without_content}::boolean THEN headers::text END, traceparent, tracestate, replays,
    coalesce(last_error LIKE 'TX.LEASE %', false),
    -- Found once for all rows, and returned with the first alone. The rows of their keys are seen as they were before this
    -- statement, so the picked ones are left out.
    CASE WHEN
        sequence = (SELECT sequence FROM picked LIMIT 1) AND $1::bigint IS NOT NULL AND {find_predecessors}::boolean
    THEN (
        SELECT coalesce(
            json_agg(json_build_array(span.tenant_id, span.key, predecessor.sequence, predecessor.wait)), '[]'
        )::text
        FROM (
            SELECT tenant_id, key, max(sequence) AS before, min(after) AS after
            FROM picked
            WHERE key IS NOT NULL
            GROUP BY tenant_id, key
        ) AS span
        CROSS JOIN LATERAL (
            {include queries/first_predecessor.sql}
        ) AS predecessor
    ) END

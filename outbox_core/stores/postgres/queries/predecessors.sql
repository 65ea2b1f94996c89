-- For each key, the first unresolved row below a sequence that is not in the relay's hand, and when it will be due.
WITH picked AS MATERIALIZED (
    SELECT NULL::tid AS place WHERE false
)
SELECT span.ordinality, earlier.sequence, earlier.wait
FROM unnest($1::uuid[], $2::text[], $4::bigint[], $8::bigint[])
    WITH ORDINALITY AS span (tenant_id, key, before, floor, ordinality)
CROSS JOIN LATERAL (
    {include queries/first_predecessor.sql}
) AS earlier

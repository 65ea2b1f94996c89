-- For each span, the first unresolved row that counts for the relay, and when it will be due.
WITH picked AS MATERIALIZED (
    SELECT NULL::tid AS tid WHERE false
)
SELECT span.ordinality, predecessor.sequence, predecessor.wait
FROM unnest($1::uuid[], $2::text[], $4::bigint[], $8::bigint[])
    WITH ORDINALITY AS span (tenant_id, key, before, after, ordinality)
CROSS JOIN LATERAL (
    {include queries/first_predecessor.sql}
) AS predecessor

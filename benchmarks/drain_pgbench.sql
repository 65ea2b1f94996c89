-- The relay's own claim and publish statements, put in with their parameters named, by one client, one after the other.
-- Like the relay the script reads on from the place where its last claim ended.
WITH claimed (
    id, tenant_id, topic, payload, content_type, event_id, sequence, created_at, attempts, available_at
) AS (
{claim}
)
SELECT
    array_agg(id) AS ids,
    array_fill(:token::uuid, ARRAY[count(*)::int]) AS tokens,
    to_timestamp(max(available_at)) AS since,
    max(sequence) AS after
FROM claimed \gset
{publish};

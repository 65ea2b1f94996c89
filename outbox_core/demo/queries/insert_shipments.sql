-- Idempotent by event id: what was shipped before is left alone, and not returned.
INSERT INTO shipments (event_id, cents)
SELECT DISTINCT ON (event_id) event_id, cents FROM unnest($1::uuid[], $2::integer[]) AS delivered (event_id, cents)
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id

-- Put on record how far a clean-up by hand has got: its first batch makes the record, the others bring it up to date.
INSERT INTO {schema}."{name}_audit" AS audit (id, action, actor, reason, filter, as_of, planned, changed, finished_at)
VALUES ($1, 'clean', $2, $3, $4::text::jsonb, now(), $5, $6, clock_timestamp())
ON CONFLICT (id) DO UPDATE
SET changed = excluded.changed, batches = audit.batches + 1, finished_at = excluded.finished_at
RETURNING id

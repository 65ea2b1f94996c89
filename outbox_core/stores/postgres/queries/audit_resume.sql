-- Put on record who goes on with a replay or discard, and why. What it changes is counted in the record it goes on with.
INSERT INTO {schema}."{name}_audit" (id, action, actor, reason, filter, as_of, planned, finished_at)
VALUES ($1, $2, $3, $4, $5::text::jsonb, now(), 0, clock_timestamp())
RETURNING id

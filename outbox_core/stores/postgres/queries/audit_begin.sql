-- Put on record that a plan is about to be carried out; nothing happens when it is on record already.
INSERT INTO {schema}."{name}_audit" (id, action, actor, reason, filter, as_of, planned, rate)
VALUES ($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8)
ON CONFLICT (id) DO NOTHING
RETURNING id

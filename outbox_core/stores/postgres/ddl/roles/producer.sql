-- A producer enqueues. It reads back what RETURNING and ON CONFLICT need, and no message of anybody's.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT INSERT ON {table} TO {role};
GRANT SELECT (event_id, sequence, topic, tenant_id, digest) ON {table} TO {role};
GRANT USAGE ON SEQUENCE {schema}."{name}_sequence_seq" TO {role};

-- A relay reads messages, moves them through their states and cleans up. It changes no message and adds none.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, DELETE ON {table} TO {role};
GRANT UPDATE (published_at, attempts, available_at, locked_at, lock_token, last_error, dead_at, replays)
    ON {table} TO {role};
GRANT SELECT, UPDATE (holder, term, heartbeat_at) ON {schema}."outbox_leader" TO {role};
GRANT SELECT ON {schema}."outbox_schema_version" TO {role};

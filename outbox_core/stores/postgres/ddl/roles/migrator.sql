-- The migrator owns the tables: it creates and changes them, and does nothing else.
GRANT USAGE, CREATE ON SCHEMA {schema} TO {role};
ALTER TABLE {table} OWNER TO {role};
ALTER TABLE {schema}."{name}_audit" OWNER TO {role};
ALTER TABLE {schema}."outbox_leader" OWNER TO {role};
ALTER TABLE {schema}."outbox_schema_version" OWNER TO {role};

SELECT version FROM {schema}."outbox_schema_version" WHERE table_name = $1::text

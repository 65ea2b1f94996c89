-- Statements that bring one thing back to what it should be, by name. Words in braces are put in.

-- name: create_table
CREATE TABLE IF NOT EXISTS {table} {definition};

-- name: set_logged
ALTER TABLE {table} SET LOGGED;

-- name: disable_row_security
ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;

-- name: unforce_row_security
ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;

-- name: drop_rule
DROP RULE {object} ON {table};

-- name: drop_trigger
DROP TRIGGER {object} ON {table};

-- name: disinherit
ALTER TABLE {definition} NO INHERIT {table};

-- name: add_column
ALTER TABLE {table} ADD COLUMN {object} {definition};

-- name: set_type
ALTER TABLE {table} ALTER COLUMN {object} TYPE {definition} USING {object}::{definition};

-- name: set_not_null
ALTER TABLE {table} ALTER COLUMN {object} SET NOT NULL;

-- name: drop_not_null
ALTER TABLE {table} ALTER COLUMN {object} DROP NOT NULL;

-- name: set_default
ALTER TABLE {table} ALTER COLUMN {object} SET DEFAULT {definition};

-- name: drop_default
ALTER TABLE {table} ALTER COLUMN {object} DROP DEFAULT;

-- name: drop_identity
ALTER TABLE {table} ALTER COLUMN {object} DROP IDENTITY;

-- name: add_constraint
ALTER TABLE {table} ADD CONSTRAINT {object} {definition};

-- name: rename_constraint
ALTER TABLE {table} RENAME CONSTRAINT {object} TO {definition};

-- name: replace_constraint
ALTER TABLE {table} DROP CONSTRAINT {object}, ADD CONSTRAINT {object} {definition};

-- name: validate_constraint
ALTER TABLE {table} VALIDATE CONSTRAINT {object};

-- name: drop_constraint
ALTER TABLE {table} DROP CONSTRAINT {object};

-- name: create_index
CREATE INDEX CONCURRENTLY {object} ON {table} USING {definition};

-- name: rename_index
ALTER INDEX {schema}.{object} RENAME TO {definition};

-- name: replace_index
DROP INDEX CONCURRENTLY {schema}.{object};
CREATE INDEX CONCURRENTLY {object} ON {table} USING {definition};

-- name: drop_index
DROP INDEX CONCURRENTLY {schema}.{object};

-- name: set_parameter
ALTER TABLE {table} SET ({object} = {definition});

-- name: reset_parameter
ALTER TABLE {table} RESET ({object});

-- name: create_sequence
CREATE SEQUENCE {schema}.{object} AS bigint;

-- name: alter_sequence
ALTER SEQUENCE {schema}.{object} AS bigint INCREMENT BY 1 NO MAXVALUE CACHE 1 NO CYCLE;

-- name: set_sequence_logged
ALTER SEQUENCE {schema}.{object} SET LOGGED;

-- name: own_sequence
ALTER SEQUENCE {schema}.{object} OWNED BY {table}.sequence;

-- name: continue_sequence
ALTER SEQUENCE {schema}.{object} OWNED BY {table}.sequence;
SELECT setval('{schema}.{object}', (SELECT coalesce(max(sequence), 0) + 1 FROM {table}), false);

-- name: insert_leader
INSERT INTO {schema}."outbox_leader" (table_name) VALUES ('{name}') ON CONFLICT DO NOTHING;

-- name: record_version
INSERT INTO {schema}."outbox_schema_version" (table_name, version) VALUES ('{name}', {definition});

-- Which parts of the work this role may do, each by the grants it needs.
SELECT
    has_schema_privilege(to_regnamespace('{schema}'), 'USAGE')
        AND has_table_privilege('{table}', 'INSERT')
        AND has_column_privilege('{table}', 'event_id', 'SELECT')
        AND has_sequence_privilege('{schema}."{name}_sequence_seq"', 'USAGE') AS enqueue,
    has_schema_privilege(to_regnamespace('{schema}'), 'USAGE')
        AND has_table_privilege('{table}', 'SELECT') AND has_table_privilege('{table}', 'DELETE')
        AND (
            SELECT bool_and(has_column_privilege('{table}', name, 'UPDATE'))
            FROM unnest(ARRAY[
                'published_at', 'attempts', 'available_at', 'locked_at', 'lock_token', 'last_error', 'dead_at', 'replays'
            ]) AS name
        )
        AND has_table_privilege('{schema}."outbox_leader"', 'SELECT')
        AND has_column_privilege('{schema}."outbox_leader"', 'term', 'UPDATE')
        AND has_column_privilege('{schema}."outbox_leader"', 'holder', 'UPDATE')
        AND has_column_privilege('{schema}."outbox_leader"', 'heartbeat_at', 'UPDATE')
        AND has_table_privilege('{schema}."outbox_schema_version"', 'SELECT') AS relay,
    has_schema_privilege(to_regnamespace('{schema}'), 'USAGE')
        AND has_column_privilege('{table}', 'dead_at', 'UPDATE') AND has_table_privilege('{table}', 'DELETE')
        AND has_table_privilege('{schema}."{name}_audit"', 'INSERT') AS operate,
    has_schema_privilege(to_regnamespace('{schema}'), 'USAGE')
        AND has_column_privilege('{table}', 'last_error', 'SELECT') AS view

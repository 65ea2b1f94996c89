-- One message by its event id.
SELECT
    {include queries/stored_columns.sql}
FROM {table}
WHERE event_id = $1::text::uuid

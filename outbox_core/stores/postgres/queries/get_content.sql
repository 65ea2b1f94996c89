-- One message by its event id, with its content.
SELECT
    {include queries/stored_columns.sql},
    {include queries/stored_content.sql}
FROM {table}
WHERE event_id = $1::text::uuid

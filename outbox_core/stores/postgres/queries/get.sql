-- One message by its event id, without its content: readable for a role that may not see that.
SELECT
    {include queries/stored_columns.sql}
FROM {table}
WHERE event_id = $1::text::uuid

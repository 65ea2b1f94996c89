-- One message without its content: readable for a role that may not see payloads.
SELECT
    {include queries/letter_columns.sql}
FROM {table}
WHERE event_id = $1

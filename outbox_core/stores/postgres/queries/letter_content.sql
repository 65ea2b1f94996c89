-- One message with its content.
SELECT
    {include queries/letter_columns.sql},
    headers::text, coalesce(body, convert_to(payload::text, 'UTF8'))
FROM {table}
WHERE event_id = $1

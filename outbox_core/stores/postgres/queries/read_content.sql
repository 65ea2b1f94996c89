-- The content of a row, read and sent to the client as a claim does.
SELECT coalesce(body, convert_to(payload::text, 'UTF8')), headers::text FROM {table} WHERE id = $1

-- Read the content of a row as a claim does, with its way to the client.
SELECT coalesce(body, convert_to(payload::text, 'UTF8')), headers::text FROM {table} WHERE id = $1

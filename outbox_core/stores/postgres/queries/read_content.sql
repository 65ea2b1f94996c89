-- Read the content of a row as a claim does, and say only how long it is.
SELECT octet_length(coalesce(body, convert_to(payload::text, 'UTF8'))) FROM {table} WHERE id = $1

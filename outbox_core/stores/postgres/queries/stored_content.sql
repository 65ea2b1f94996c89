    headers::text, payload::text, body

        ($1::text IS NULL OR topic ~ $1)
        AND ($2::uuid IS NULL OR tenant_id = $2)
        AND ($3::text IS NULL OR coalesce(nullif(split_part(last_error, ' ', 1), ''), 'UNKNOWN.ERROR') = $3)

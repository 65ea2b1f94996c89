        CASE
            -- Leased without its content, which may be unreadable.
            WHEN {without_content}::boolean THEN 0
            WHEN body IS NOT NULL THEN octet_length(body)
            -- A stored size is the size in memory unless the value was compressed: only then is it worth writing it out.
            WHEN pg_column_compression(payload) IS NULL THEN pg_column_size(payload)
            ELSE octet_length(payload::text)
        END

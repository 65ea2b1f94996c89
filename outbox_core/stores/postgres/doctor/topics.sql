-- Topics in use: of the first messages that wait, of those published last, and of those that died last.
SELECT topic
FROM (
    (
        SELECT topic
        FROM {table}
        WHERE published_at IS NULL AND dead_at IS NULL
        ORDER BY available_at, sequence
        LIMIT 1000
    )
    UNION ALL
    (
        SELECT topic
        FROM {table}
        WHERE published_at IS NOT NULL
        ORDER BY published_at DESC, sequence DESC
        LIMIT 1000
    )
    UNION ALL
    (
        SELECT topic
        FROM {table}
        WHERE dead_at IS NOT NULL
        ORDER BY dead_at DESC, sequence DESC
        LIMIT 1000
    )
) AS seen
GROUP BY topic
ORDER BY topic
LIMIT 50

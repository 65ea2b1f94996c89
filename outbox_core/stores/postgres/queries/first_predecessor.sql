            -- The first unresolved row of a span that is neither under the relay's own tokens nor picked now, and when it
            -- will be due: of the living, and of the dead where these hold their key, each from an index of their own. The
            -- living are searched from the span's lower bound on, which is mostly the key's beginning: a row that was
            -- written first may commit last, when later rows are in flight.
            SELECT sequence, wait
            FROM (
                (
                    -- A row that is being released counts, but its lease does not. A wait of years is cut to a day, after
                    -- which it is read again; no clock can express some of them.
                    SELECT
                        sequence,
                        CASE
                            WHEN id = ANY ($7::uuid[]) THEN 0
                            ELSE extract(epoch FROM least(
                                greatest(
                                    available_at, now(),
                                    CASE
                                        WHEN locked_at IS NOT NULL
                                        THEN least(locked_at, now()) + make_interval(secs => $3)
                                    END
                                ),
                                now() + interval '1 day'
                            ) - now())::float8
                        END AS wait
                    FROM {table} AS message
                    WHERE
                        -- A range of all three columns, so that only the key's own index can serve it.
                        (message.tenant_id, message.key, sequence) > (span.tenant_id, span.key, span.after)
                        AND (message.tenant_id, message.key, sequence) < (span.tenant_id, span.key, span.before)
                        AND message.key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL
                        AND (lock_token IS NULL OR lock_token <> ALL ($5::uuid[]) OR id = ANY ($7::uuid[]))
                        -- Replayed rows come before no other; they are reported to those who ask what a key has.
                        AND (
                            replays = 0
                            OR (
                                span.before = 9223372036854775807
                                AND available_at <= now()
                                AND (locked_at IS NULL OR locked_at < now() - make_interval(secs => $3))
                            )
                        )
                        AND ctid NOT IN (SELECT tid FROM picked)
                    ORDER BY message.tenant_id, message.key, sequence
                    LIMIT 1
                )
                UNION ALL
                (
                    SELECT sequence, NULL
                    FROM {table} AS message
                    WHERE
                        (message.tenant_id, message.key, sequence) > (span.tenant_id, span.key, 0)
                        AND (message.tenant_id, message.key, sequence) < (span.tenant_id, span.key, span.before)
                        AND message.key IS NOT NULL AND dead_at IS NOT NULL AND replays = 0
                        AND $6::boolean
                    ORDER BY message.tenant_id, message.key, sequence
                    LIMIT 1
                )
            ) AS found
            ORDER BY sequence
            LIMIT 1

            -- The first unresolved row of a key before a sequence that is neither in the relay's hand nor picked now, and
            -- when it will be due: of the living, and of the dead where these hold their key, each from an index that has no
            -- others in it. The living are looked for from the key's floor on, which mostly is its beginning: what was written
            -- first may be committed last, when later ones are in hand.
            SELECT sequence, wait
            FROM (
                (
                    -- One that goes back at this moment is waited for, too, but not for its lease to end. A wait of years
                    -- is looked at again in a day; no clock can express some of them.
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
                        -- Written as a range of all three columns, so that no other index than the key's own can serve it.
                        (message.tenant_id, message.key, sequence) > (span.tenant_id, span.key, span.floor)
                        AND (message.tenant_id, message.key, sequence) < (span.tenant_id, span.key, span.before)
                        AND message.key IS NOT NULL AND published_at IS NULL AND dead_at IS NULL
                        AND (lock_token IS NULL OR lock_token <> ALL ($5::uuid[]) OR id = ANY ($7::uuid[]))
                        -- Replayed ones come before nobody, but whoever asks what a key has is told of them.
                        AND (
                            replays = 0
                            OR (
                                span.before = 9223372036854775807
                                AND available_at <= now()
                                AND (locked_at IS NULL OR locked_at < now() - make_interval(secs => $3))
                            )
                        )
                        AND ctid NOT IN (SELECT place FROM picked)
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

-- $1 messages of 512 KiB that compress to almost nothing, JSON and bytes by turns; $2 and $3 as in load.sql.
INSERT INTO {table} (id, event_id, tenant_id, topic, key, payload, body, content_type, digest, available_at)
SELECT
    {uuid}(), {uuid}(), '11111111-1111-1111-1111-111111111111', 'shop.report.made.v1',
    CASE WHEN $2::int > 0 THEN 'order-' || n % $2::int END,
    CASE WHEN n % 2 = 0 THEN jsonb_build_object('zeros', repeat('0', 524288)) END,
    CASE WHEN n % 2 = 1 THEN convert_to(repeat('0', 524288), 'UTF8') END,
    CASE WHEN n % 2 = 1 THEN 'application/octet-stream' END,
    '\x0000000000000000000000000000000000000000000000000000000000000000',
    clock_timestamp() + make_interval(secs => $3::float8)
FROM generate_series(1, $1::int) AS n

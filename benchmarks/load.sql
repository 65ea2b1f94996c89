-- A backlog: $1 messages of about 300 bytes, in $2 keys by turns (0: without a key), due $3 seconds from now.
INSERT INTO {table} (id, event_id, tenant_id, topic, key, payload, digest, available_at)
SELECT
    {uuid}(), {uuid}(), '11111111-1111-1111-1111-111111111111', 'shop.order.placed.v1',
    CASE WHEN $2::int > 0 THEN 'order-' || n % $2::int END,
    jsonb_build_object('order', n, 'note', repeat(md5(n::text), 8)),
    '\x0000000000000000000000000000000000000000000000000000000000000000',
    clock_timestamp() + make_interval(secs => $3::float8)
FROM generate_series(1, $1::int) AS n

-- $1 messages of about 300 bytes that were published $2 seconds ago, one after the other.
INSERT INTO {table} (id, event_id, tenant_id, topic, payload, digest, created_at, published_at)
SELECT
    {uuid}(), {uuid}(), '11111111-1111-1111-1111-111111111111', 'shop.order.placed.v1',
    jsonb_build_object('order', n, 'note', repeat(md5(n::text), 8)),
    '\x0000000000000000000000000000000000000000000000000000000000000000',
    now() - make_interval(secs => $2::float8), now() - make_interval(secs => $2::float8 - n * 0.0001)
FROM generate_series(1, $1::int) AS n

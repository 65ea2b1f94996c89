SELECT
    count(*) FILTER (WHERE published_at IS NOT NULL) AS published,
    count(*) FILTER (WHERE published_at IS NULL AND dead_at IS NULL) AS backlog,
    count(*) FILTER (WHERE dead_at IS NOT NULL) AS dead
FROM orders_outbox

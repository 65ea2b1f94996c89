-- Every event id of the demonstration with the place it was found in, from one moment of the database.
SELECT 'committed' AS place, event_id FROM orders
UNION ALL
SELECT 'published', event_id FROM orders_outbox WHERE published_at IS NOT NULL
UNION ALL
SELECT 'dead', event_id FROM orders_outbox WHERE dead_at IS NOT NULL
UNION ALL
SELECT 'consumed', event_id FROM shipments

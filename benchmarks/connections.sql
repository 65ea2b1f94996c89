-- The sessions of relays, which name themselves after their first table.
SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'outbox:%' AND backend_type = 'client backend'

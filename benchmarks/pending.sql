SELECT count(*) FILTER (WHERE published_at IS NULL), max(published_at) FROM {table}

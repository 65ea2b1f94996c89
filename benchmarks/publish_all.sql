UPDATE {table} SET published_at = now()

UPDATE {table} SET published_at = now(), locked_at = NULL, lock_token = NULL WHERE id = $1

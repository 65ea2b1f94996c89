INSERT INTO orders (event_id, customer, cents) VALUES ($1, $2, $3)

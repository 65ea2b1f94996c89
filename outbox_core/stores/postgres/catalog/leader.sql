SELECT EXISTS (SELECT FROM {schema}."outbox_leader" WHERE table_name = $1::text)

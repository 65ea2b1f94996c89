SELECT term FROM {schema}."outbox_leader" WHERE table_name = '{name}'

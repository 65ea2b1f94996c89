"""Who listens to a relay. `outbox_core.observer` is the contract; each module here tells one kind of listener."""

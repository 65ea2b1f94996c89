"""The open transactions people have. `outbox_core.transaction` is the contract; each module here knows one driver."""

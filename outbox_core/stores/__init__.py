"""Where messages are kept. `outbox_core.store` is the contract; each module or folder here fulfils it."""

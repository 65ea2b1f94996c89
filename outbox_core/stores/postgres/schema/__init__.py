"""PostgreSQL's schema tools: create, verify, upgrade, print and grant. `outbox_core.schema_tools` is the contract."""

"""PostgreSQL's checks for `outbox_core.doctor`, each beside the statement it reads with."""

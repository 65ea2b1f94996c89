"""The PostgreSQL store: its statements, its migrations and the code that runs them."""

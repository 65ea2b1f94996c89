"""What must never get out, what must never get in, and what the project is made of."""

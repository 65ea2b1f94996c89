"""What a schema should look like and what PostgreSQL's catalog says it looks like, in the same terms."""

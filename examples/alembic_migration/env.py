"""Alembic's way to the database, with psycopg: it runs several statements of one file in one go."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool

from examples.environment import address

url = address("OUTBOX_DATABASE_URL").replace("postgresql://", "postgresql+psycopg://", 1)

if context.is_offline_mode():
    context.configure(url=url, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()

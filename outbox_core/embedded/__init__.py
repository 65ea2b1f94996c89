"""Real servers from wheels, for trying things: a PostgreSQL and a NATS with JetStream, on this machine alone.

    async with EmbeddedPostgres() as postgres, EmbeddedNats() as nats:
        ...                         # postgres.url, nats.url

They come with the extra ``[embedded]``, listen on 127.0.0.1 without a password, and are gone with their data when the
block ends, or when this process is killed. Not for production.
"""

from outbox_core.embedded.nats import EmbeddedNats
from outbox_core.embedded.postgres import EmbeddedPostgres

__all__ = ["EmbeddedNats", "EmbeddedPostgres"]

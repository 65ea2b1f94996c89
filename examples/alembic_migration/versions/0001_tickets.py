"""Tickets, and the outbox for their events."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

FOLDER = Path(__file__).parent


def upgrade() -> None:
    op.create_table("tickets", sa.Column("id", sa.Uuid, primary_key=True), sa.Column("title", sa.Text))
    op.execute((FOLDER / "0001_outbox_up.sql").read_text())


def downgrade() -> None:
    op.execute((FOLDER / "0001_outbox_down.sql").read_text())
    op.drop_table("tickets")

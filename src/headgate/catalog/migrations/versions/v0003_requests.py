"""Answered requests, so that one that is repeated is not done twice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "request",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.UniqueConstraint("request", name="uq_request_request"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_table("request")

"""Subscriptions by their delivery class: who wants the same rows may share an inbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_INDEX = "ix_subscription_version_class"
_CURRENT = sa.text("until IS NULL")


def upgrade() -> None:
    """Make the index."""
    op.create_index(_INDEX, "subscription_version", ["class_id"], sqlite_where=_CURRENT, postgresql_where=_CURRENT)


def downgrade() -> None:
    """Remove it."""
    op.drop_index(_INDEX, "subscription_version")

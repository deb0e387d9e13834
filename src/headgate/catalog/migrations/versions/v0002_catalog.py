"""The first schema: identity, versions, subscriptions, delivery classes, the applied file, the ends of the logs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headgate.wire.identity import new_id

revision = "0002"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_CURRENT = sa.text("until IS NULL")


def upgrade() -> None:
    """Make the tables and the one row of `head`."""
    head = op.create_table(
        "head",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("revision", _ID, nullable=False),
        sa.Column("deployment", sa.String(32), nullable=False),
        sa.CheckConstraint("id = 1", name="ck_head_one_row"),
    )
    op.bulk_insert(head, [{"id": 1, "revision": 0, "deployment": new_id()}])
    op.create_table(
        "revision",
        sa.Column("revision", _ID, primary_key=True, autoincrement=False),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("mark", sa.String(32), nullable=False),
        sa.Column("last_subscription", _ID, nullable=False),
        sa.Column("last_class", _ID, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_table(
        "version",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("crc", _ID, nullable=False),
        sa.Column("since", _ID, nullable=False),
        sa.Column("until", _ID),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "delivery_class",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.UniqueConstraint("digest", name="uq_delivery_class_digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "subscription",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("origin", sa.String(8), nullable=False),
        sa.Column("since", _ID, nullable=False),
        sa.Column("until", _ID),
        sa.CheckConstraint("origin IN ('file', 'live')", name="ck_subscription_origin"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "subscription_version",
        sa.Column("id", _ID, primary_key=True),
        sa.Column(
            "subscription_id",
            _ID,
            sa.ForeignKey("subscription.id", name="fk_subscription_version_subscription_id"),
            nullable=False,
        ),
        sa.Column(
            "class_id",
            _ID,
            sa.ForeignKey("delivery_class.id", name="fk_subscription_version_class_id"),
            nullable=False,
        ),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("crc", _ID, nullable=False),
        sa.Column("since", _ID, nullable=False),
        sa.Column("until", _ID),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "filed",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("crc", _ID, nullable=False),
    )
    op.create_table(
        "run",
        sa.Column("number", _ID, primary_key=True, autoincrement=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("heads", sa.Text, nullable=False),
    )
    op.create_table(
        "witness",
        sa.Column("log", sa.String(256), primary_key=True),
        sa.Column("sequence", _ID, nullable=False),
    )
    for table, columns in _CURRENT_OF.items():
        op.create_index(f"ix_{table}_until", table, ["until"])
        op.create_index(
            f"uq_{table}_current", table, columns, unique=True, sqlite_where=_CURRENT, postgresql_where=_CURRENT
        )


_CURRENT_OF = {
    "version": ["kind", "name"],
    "subscription": ["name"],
    "subscription_version": ["subscription_id"],
}


def downgrade() -> None:
    """Remove everything."""
    for table in _TABLES:
        op.drop_table(table)


_TABLES = (
    "witness", "run", "filed", "subscription_version", "subscription", "delivery_class", "version", "revision", "head",
)  # fmt: skip

"""The tables of the catalog. What changes over time is kept as versions that hold from `since` up to before `until`.

`crc` is a checksum of what a row says (`headgate.catalog.checksum`), so that damage is found where it is.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    text,
)

_ID = BigInteger().with_variant(Integer, "sqlite")
_NAME = String(128)
_CURRENT = text("until IS NULL")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# One row, locked by every writer: the current revision, and the id of the deployment that this catalog is of.
head = Table(
    "head",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True),
    Column("revision", _ID, nullable=False),
    Column("deployment", String(32), nullable=False),
)

# What each revision did, for people; a random word that tells it from another revision of the same number; and the
# largest ids that were given by then.
revision = Table(
    "revision",
    metadata,
    Column("revision", _ID, primary_key=True, autoincrement=False),
    Column("change", Text, nullable=False),
    Column("mark", String(32), nullable=False),
    Column("last_subscription", _ID, nullable=False),
    Column("last_class", _ID, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

# Versions of streams, sites, links, settings and delivery trees.
version = Table(
    "version",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("name", _NAME, nullable=False),
    Column("body", Text, nullable=False),
    Column("crc", _ID, nullable=False),
    Column("since", _ID, nullable=False),
    Column("until", _ID, index=True),
    Index("uq_version_current", "kind", "name", unique=True, sqlite_where=_CURRENT, postgresql_where=_CURRENT),
    sqlite_autoincrement=True,
)

# Delivery classes are never removed, so that an id in a log means the same for ever.
delivery_class = Table(
    "delivery_class",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("definition", Text, nullable=False),
    sqlite_autoincrement=True,
)

# The lives of subscriptions: a name that is removed and added again begins a new life with a new id.
subscription = Table(
    "subscription",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("origin", String(8), CheckConstraint("origin IN ('file', 'live')", name="origin"), nullable=False),
    Column("since", _ID, nullable=False),
    Column("until", _ID, index=True),
    Index("uq_subscription_current", "name", unique=True, sqlite_where=_CURRENT, postgresql_where=_CURRENT),
    sqlite_autoincrement=True,
)

subscription_version = Table(
    "subscription_version",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("subscription_id", _ID, ForeignKey("subscription.id"), nullable=False),
    Column("class_id", _ID, ForeignKey("delivery_class.id"), nullable=False),
    Column("body", Text, nullable=False),
    Column("crc", _ID, nullable=False),
    Column("since", _ID, nullable=False),
    Column("until", _ID, index=True),
    Index(
        "uq_subscription_version_current",
        "subscription_id",
        unique=True,
        sqlite_where=_CURRENT,
        postgresql_where=_CURRENT,
    ),
    Index("ix_subscription_version_class", "class_id", sqlite_where=_CURRENT, postgresql_where=_CURRENT),
    sqlite_autoincrement=True,
)

# What the last applied file said, so that applying it again does not undo what was changed since.
filed = Table(
    "filed",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("body", Text, nullable=False),
    Column("crc", _ID, nullable=False),
)

# The starts of the service, each with the last committed sequence number of every stream.
run = Table(
    "run",
    metadata,
    Column("number", _ID, primary_key=True, autoincrement=False),
    Column("id", String(32), nullable=False),
    Column("heads", Text, nullable=False),
)

# The last sequence number that was seen in each log: a log that ends before it is older than this catalog.
witness = Table(
    "witness",
    metadata,
    Column("log", String(256), primary_key=True),
    Column("sequence", _ID, nullable=False),
)

# What requests of clients were answered, so that one that is repeated is not done twice. `request` is the client's id.
request = Table(
    "request",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("request", String(64), nullable=False, unique=True),
    Column("answer", Text, nullable=False),
    sqlite_autoincrement=True,
)

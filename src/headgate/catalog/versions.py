"""Reading and writing versions inside a transaction: what holds at a revision, and what holds from the next one on.

A body is the JSON text of a `codec` document. Writing a body that is already in force changes nothing and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from headgate.catalog import tables
from headgate.catalog.checksum import checksum, verify

STREAM, SITE, LINKS, SETTINGS, TREE, CONTEXT = "stream", "site", "links", "settings", "tree", "context"
INCARNATION = "incarnation"
SUBSCRIPTION = "subscription"
_NAMES: Final = 500  # asked for at a time: databases limit how many values a question may have


@dataclass(frozen=True, slots=True)
class SubscriptionLife:
    """A subscription in force: its id, class, origin and body."""

    id: int
    name: str
    class_id: int
    origin: str
    body: str


def _holds(table: sa.Table, revision: int | None) -> sa.ColumnElement[bool]:
    if revision is None:
        return table.c.until.is_(None)
    return sa.and_(table.c.since <= revision, sa.or_(table.c.until.is_(None), table.c.until > revision))


def bodies(connection: sa.Connection, revision: int | None = None) -> dict[tuple[str, str], str]:
    """Everything except subscriptions by (kind, name), at a revision or now."""
    table = tables.version
    columns = (table.c.kind, table.c.name, table.c.body, table.c.crc)
    found = {}
    for row in connection.execute(sa.select(*columns).where(_holds(table, revision))):
        verify(row.crc, table.name, f"{row.kind} {row.name!r}", row.kind, row.name, row.body)
        found[row.kind, row.name] = row.body
    return found


def put(connection: sa.Connection, kind: str, name: str, body: str | None, revision: int) -> bool:
    """Put a body in force from a revision on, None to end it; False when it already was so."""
    table = tables.version
    here = sa.and_(table.c.kind == kind, table.c.name == name, table.c.until.is_(None))
    if connection.execute(sa.select(table.c.body).where(here)).scalar() == body:
        return False
    connection.execute(sa.update(table).where(here).values(until=revision))
    if body is not None:
        crc = checksum(kind, name, body)
        connection.execute(sa.insert(table).values(kind=kind, name=name, body=body, crc=crc, since=revision))
    return True


def lives(connection: sa.Connection, revision: int | None = None, after: int = 0) -> Iterator[SubscriptionLife]:
    """The subscriptions in force at a revision or now, in the order of their ids; of contents after one only."""
    life, content = tables.subscription, tables.subscription_version
    query = (
        sa.select(life.c.id, life.c.name, content.c.class_id, life.c.origin, content.c.body, content.c.crc)
        .join(content, content.c.subscription_id == life.c.id)
        .where(_holds(content, revision), content.c.id > after)
        .order_by(life.c.id)
    )
    for row in connection.execute(query):
        yield _life(*row)


def ended_since(connection: sa.Connection, before: int, revision: int) -> list[str]:
    """Names of subscriptions of which a content was ended after one revision and up to another."""
    life, content = tables.subscription, tables.subscription_version
    query = (
        sa.select(life.c.name)
        .join(content, content.c.subscription_id == life.c.id)
        .where(content.c.until > before, content.c.until <= revision)
    )
    return list(connection.execute(query).scalars())


def life(connection: sa.Connection, name: str) -> SubscriptionLife | None:
    """The subscription of that name that is in force now."""
    table, content = tables.subscription, tables.subscription_version
    query = (
        sa.select(table.c.id, table.c.name, content.c.class_id, table.c.origin, content.c.body, content.c.crc)
        .join(content, content.c.subscription_id == table.c.id)
        .where(table.c.name == name, table.c.until.is_(None), content.c.until.is_(None))
    )
    row = connection.execute(query).first()
    return None if row is None else _life(*row)


def _life(identity: int, name: str, class_id: int, origin: str, body: str, crc: int) -> SubscriptionLife:
    found = SubscriptionLife(identity, name, class_id, origin, body)
    what = f"subscription {found.name!r} (id {found.id})"
    verify(crc, tables.subscription_version.name, what, found.id, found.name, found.class_id, found.body)
    return found


def begin_life(
    connection: sa.Connection,
    name: str,
    origin: str,
    class_id: int,
    body: str,
    revision: int,
    identity: int | None = None,
) -> None:
    """Add a subscription under a new id, or under one that it had in another catalog."""
    table = tables.subscription
    values = {"name": name, "origin": origin, "since": revision} | ({} if identity is None else {"id": identity})
    made = sa.insert(table).values(values).returning(table.c.id)
    _content(connection, connection.execute(made).scalar_one(), name, class_id, body, revision)


def new_ids(connection: sa.Connection, names: Sequence[str], origin: str, revision: int) -> dict[str, int]:
    """The ids of new subscriptions by name; `begin_lives` gives them their contents."""
    table = tables.subscription
    last = connection.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0
    connection.execute(sa.insert(table), [{"name": name, "origin": origin, "since": revision} for name in names])
    made = sa.select(table.c.name, table.c.id).where(table.c.id > last, table.c.until.is_(None))
    return {name: int(identity) for name, identity in connection.execute(made)}


def begin_lives(
    connection: sa.Connection, ids: Mapping[str, int], subscriptions: Sequence[tuple[str, int, str]], revision: int
) -> None:
    """Add many subscriptions, each with its name, class and body, under ids that were made for them."""
    contents = [
        {
            "subscription_id": ids[name],
            "class_id": class_id,
            "body": body,
            "crc": checksum(ids[name], name, class_id, body),
            "since": revision,
        }
        for name, class_id, body in subscriptions
    ]
    connection.execute(sa.insert(tables.subscription_version), contents)


def names_in_force(connection: sa.Connection, names: Sequence[str]) -> list[str]:
    """Those of some names that a subscription has now, in their order."""
    table, known = tables.subscription, set()
    for start in range(0, len(names), _NAMES):
        part = names[start : start + _NAMES]
        known |= set(
            connection.execute(sa.select(table.c.name).where(table.c.name.in_(part), table.c.until.is_(None))).scalars()
        )
    return [name for name in names if name in known]


def change_life(
    connection: sa.Connection, found: SubscriptionLife, origin: str, class_id: int, body: str, revision: int
) -> bool:
    """Give a subscription another body, class or origin; False when it already had them."""
    if (found.origin, found.class_id, found.body) == (origin, class_id, body):
        return False
    table = tables.subscription
    connection.execute(sa.update(table).where(table.c.id == found.id).values(origin=origin))
    if (found.class_id, found.body) != (class_id, body):
        _end_content(connection, found.id, revision)
        _content(connection, found.id, found.name, class_id, body, revision)
    return True


def end_life(connection: sa.Connection, found: SubscriptionLife, revision: int) -> None:
    """Remove a subscription; its id is not used again."""
    table = tables.subscription
    connection.execute(sa.update(table).where(table.c.id == found.id).values(until=revision))
    _end_content(connection, found.id, revision)


def _content(connection: sa.Connection, identity: int, name: str, class_id: int, body: str, revision: int) -> None:
    crc = checksum(identity, name, class_id, body)
    values = {"subscription_id": identity, "class_id": class_id, "body": body, "crc": crc, "since": revision}
    connection.execute(sa.insert(tables.subscription_version).values(values))


def _end_content(connection: sa.Connection, subscription_id: int, revision: int) -> None:
    table = tables.subscription_version
    here = sa.and_(table.c.subscription_id == subscription_id, table.c.until.is_(None))
    connection.execute(sa.update(table).where(here).values(until=revision))


def forget(connection: sa.Connection, before: int) -> None:
    """Delete what is only needed to read revisions before one. Ids and classes stay taken."""
    for table in (tables.version, tables.subscription_version):
        connection.execute(sa.delete(table).where(table.c.until <= before))
    connection.execute(sa.delete(tables.revision).where(tables.revision.c.revision < before))


def record(connection: sa.Connection, revision: int, change: str, mark: str) -> None:
    """Note that a revision was made, and which ids were given by then."""
    last = {
        f"last_{what}": connection.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0
        for what, table in (("subscription", tables.subscription), ("class", tables.delivery_class))
    }
    values = {"revision": revision, "change": change, "mark": mark, **last}
    connection.execute(sa.insert(tables.revision).values(values))

"""What a change has changed: every document that it put in force or ended, before and after."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from headgate.catalog import tables, versions


@dataclass(frozen=True, slots=True)
class Changed:
    """One document by its kind and name, as JSON text; None where there was none, or is none any more."""

    kind: str
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Start:
    """The newest rows when a change began: what it writes has larger ids."""

    version: int
    content: int

    @classmethod
    def of(cls, connection: sa.Connection) -> Start:
        """Where the tables end now."""
        newest = (
            connection.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0
            for table in (tables.version, tables.subscription_version)
        )
        return cls(*newest)


def difference(connection: sa.Connection, start: Start, revision: int) -> list[Changed]:
    """What a change that began at `start` has done in `revision`, in the order of kinds and names."""
    table, content, life = tables.version, tables.subscription_version, tables.subscription
    before: dict[tuple[str, str], str] = {}
    after: dict[tuple[str, str], str] = {}
    for found, condition in ((before, table.c.until == revision), (after, table.c.id > start.version)):
        for kind, name, body in connection.execute(
            sa.select(table.c.kind, table.c.name, table.c.body).where(condition)
        ):
            found[kind, name] = body
    joined = sa.select(life.c.name, content.c.body).join(content, content.c.subscription_id == life.c.id)
    for found, condition in ((before, content.c.until == revision), (after, content.c.id > start.content)):
        for name, body in connection.execute(joined.where(condition)):
            found[versions.SUBSCRIPTION, name] = body
    keys = sorted(before.keys() | after.keys())
    return [Changed(*key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]

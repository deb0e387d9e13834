"""Reading the catalog inside a transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.identity import read_identity
from headgate.model import Deployment, Links, Plan
from headgate.wire import codec
from headgate.wire.identity import Incarnation
from headgate.wire.snapshot import Snapshot, decode_settings
from headgate.wire.subscription_texts import SubscriptionTexts


def read_head(connection: sa.Connection) -> int:
    """The current revision."""
    return int(connection.execute(sa.select(tables.head.c.revision)).scalar_one())


def read_answer(connection: sa.Connection, request: str) -> dict[str, Any] | None:
    """What a request was answered, None when it was not or is forgotten."""
    table = tables.request
    found = connection.execute(sa.select(table.c.answer).where(table.c.request == request)).scalar()
    answer: dict[str, Any] | None = None if found is None else json.loads(found)
    return answer


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A revision that changed the plan: when and by what, and the plans before and after."""

    revision: int
    time: str
    what: str
    before: Plan
    after: Plan


def read_plans(connection: sa.Connection, oldest: int, limit: int) -> list[PlanChange]:
    """The last changes of the plan after a revision, newest first."""
    table, found = tables.version, []
    ends = [
        sa.select(column.label("revision")).where(table.c.kind == versions.TREE, column > oldest)
        for column in (table.c.since, table.c.until)
    ]
    of_trees = sa.union(*ends).subquery()
    made = (
        sa.select(tables.revision.c.revision, tables.revision.c.made_at, tables.revision.c.change)
        .where(tables.revision.c.revision.in_(sa.select(of_trees.c.revision)))
        .order_by(tables.revision.c.revision.desc())
        .limit(limit)
    )
    for revision, made_at, what in connection.execute(made).all():
        before, after = (_plan(connection, each) for each in (revision - 1, revision))
        time = (made_at if made_at.tzinfo else made_at.replace(tzinfo=UTC)).isoformat(timespec="milliseconds")
        found.append(PlanChange(revision, time, what, before, after))
    return found


def _plan(connection: sa.Connection, revision: int) -> Plan:
    bodies = versions.bodies(connection, revision)
    return codec.decode_plan({name: json.loads(body) for (kind, name), body in bodies.items() if kind == versions.TREE})


def read_snapshot(connection: sa.Connection, revision: int, *, subscriptions: bool = True) -> Snapshot:
    """The catalog at a revision that is kept, or all of it but the subscriptions."""
    parts: dict[str, dict[str, Any]] = {}
    for (kind, name), body in sorted(versions.bodies(connection, revision).items()):
        parts.setdefault(kind, {})[name] = json.loads(body)
    lives = {life.name: life for life in versions.lives(connection, revision)} if subscriptions else {}
    texts = SubscriptionTexts()
    trees = parts.get(versions.TREE)
    plan = None if trees is None else codec.decode_plan(trees)
    links = parts.get(versions.LINKS, {}).get("")
    deployment = Deployment(
        streams={name: codec.decode_stream(name, body) for name, body in parts.get(versions.STREAM, {}).items()},
        sites={name: codec.decode_site(name, body) for name, body in parts.get(versions.SITE, {}).items()},
        links=Links() if links is None else codec.decode_links(links),
        subscriptions={name: texts.read(name, life.body) for name, life in lives.items()},
        plan=plan,
        **decode_settings(parts.get(versions.SETTINGS, {}).get("", {})),
    )
    return Snapshot(
        revision=revision,
        deployment=deployment,
        plan=plan,
        subscription_ids={name: life.id for name, life in lives.items()},
        class_ids={name: life.class_id for name, life in lives.items()},
        contexts={name: int(place) for name, place in parts.get(versions.CONTEXT, {}).items()},
        identity=read_identity(
            connection,
            revision,
            {name: Incarnation(**body) for name, body in parts.get(versions.INCARNATION, {}).items()},
        ),
    )

"""Reading the catalog inside a transaction."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.identity import read_identity
from headgate.model import Deployment, Links
from headgate.wire import codec
from headgate.wire.identity import Incarnation
from headgate.wire.snapshot import Snapshot, decode_settings


def read_head(connection: sa.Connection) -> int:
    """The current revision."""
    return int(connection.execute(sa.select(tables.head.c.revision)).scalar_one())


def read_answer(connection: sa.Connection, request: str) -> dict[str, Any] | None:
    """What a request was answered, None when it was not or is forgotten."""
    table = tables.request
    found = connection.execute(sa.select(table.c.answer).where(table.c.request == request)).scalar()
    answer: dict[str, Any] | None = None if found is None else json.loads(found)
    return answer


def read_snapshot(connection: sa.Connection, revision: int) -> Snapshot:
    """The catalog at a revision that is kept."""
    parts: dict[str, dict[str, Any]] = {}
    for (kind, name), body in sorted(versions.bodies(connection, revision).items()):
        parts.setdefault(kind, {})[name] = json.loads(body)
    lives = {life.name: life for life in versions.lives(connection, revision)}
    trees = parts.get(versions.TREE)
    plan = None if trees is None else codec.decode_plan(trees)
    links = parts.get(versions.LINKS, {}).get("")
    deployment = Deployment(
        streams={name: codec.decode_stream(name, body) for name, body in parts.get(versions.STREAM, {}).items()},
        sites={name: codec.decode_site(name, body) for name, body in parts.get(versions.SITE, {}).items()},
        links=Links() if links is None else codec.decode_links(links),
        subscriptions={name: codec.decode_subscription(name, json.loads(life.body)) for name, life in lives.items()},
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

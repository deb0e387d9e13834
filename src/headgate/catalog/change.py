"""One change of the catalog: a writing transaction that makes the next revision, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from headgate.catalog import codec, tables, versions
from headgate.catalog.checks import Finding, check_name, check_subscription
from headgate.catalog.classes import class_id, definition
from headgate.catalog.database import CatalogError, writing
from headgate.catalog.positions import dotted
from headgate.catalog.problems import suggestion
from headgate.model import Stream, Subscription


@dataclass(slots=True)
class Change:
    """A change under way. `revision` is the one it makes if `made` is set; `result` is the head afterwards."""

    connection: sa.Connection
    revision: int
    made: bool = False

    @property
    def result(self) -> int:
        """The revision in force after the change."""
        return self.revision if self.made else self.revision - 1


@contextmanager
def changing(engine: sa.Engine, what: str, keep: int) -> Iterator[Change]:
    """A change in one transaction. Writers wait here for each other, in this process and in others.

    Afterwards only the last `keep` revisions before the current one can still be read.
    """
    with writing(engine) as connection:
        locked = sa.select(tables.head.c.revision).with_for_update()
        change = Change(connection, connection.execute(locked).scalar_one() + 1)
        yield change
        if change.made:
            connection.execute(sa.insert(tables.revision).values(revision=change.revision, change=what))
            connection.execute(sa.update(tables.head).values(revision=change.revision))
            versions.forget(connection, change.revision - keep)


def refuse(what: str, findings: Iterable[Finding]) -> None:
    """Raise the first finding, if there is one."""
    for finding in findings:
        where = f"{dotted(finding.path)}: " if finding.path else ""
        raise CatalogError(f"{what}: {where}{finding.message}", hint=finding.hint)


@dataclass(frozen=True, slots=True)
class World:
    """What subscriptions and plans are checked against: the sites and the streams."""

    sites: frozenset[str]
    streams: dict[str, Stream]

    @property
    def roots(self) -> dict[str, str]:
        """The root site of each stream."""
        return {name: stream.root for name, stream in self.streams.items()}


def world(connection: sa.Connection) -> World:
    """The streams and sites in force."""
    bodies = versions.bodies(connection)
    streams = {
        name: codec.decode_stream(name, json.loads(body))
        for (kind, name), body in bodies.items()
        if kind == versions.STREAM
    }
    return World(
        sites=frozenset(name for kind, name in bodies if kind == versions.SITE),
        streams=streams,
    )


def class_of(connection: sa.Connection, subscription: Subscription, around: World) -> int:
    """The delivery class of a subscription that agrees with the streams and sites; a wrong one is refused."""
    what = f"subscription {subscription.name!r}"
    refuse(what, check_name(subscription.name))
    refuse(what, check_subscription(subscription, around.streams, around.sites))
    return class_id(connection, definition(subscription, around.streams[subscription.stream]))


def living(connection: sa.Connection, name: str) -> versions.Life:
    """The subscription of that name; an unknown one is refused with the nearest."""
    found = versions.life(connection, name)
    if found is None:
        known = sorted(life.name for life in versions.lives(connection))
        raise CatalogError(f"unknown subscription {name!r}", hint=suggestion(name, known, "subscriptions"))
    return found


def body_of(subscription: Subscription) -> str:
    """The stored form of a subscription."""
    return codec.dumps(codec.encode_subscription(subscription))


def replace_subscription(change: Change, subscription: Subscription, around: World, origin: str | None = None) -> None:
    """Put another content under the name of a subscription.

    It keeps its id unless it moves to another stream or site: an inbox belongs to one site, so that what it is owed
    there stays in the old one.
    """
    found = living(change.connection, subscription.name)
    new_class = class_of(change.connection, subscription, around)
    body, origin = body_of(subscription), origin or found.origin
    before = json.loads(found.body)
    if (before["stream"], before["site"]) == (subscription.stream, subscription.site):
        change.made |= versions.change_life(change.connection, found, origin, new_class, body, change.revision)
        return
    versions.end_life(change.connection, found, change.revision)
    versions.begin_life(change.connection, subscription.name, origin, new_class, body, change.revision)
    change.made = True

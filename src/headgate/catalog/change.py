"""One change of the catalog: a writing transaction that makes the next revision, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.checks import Flaw, check_name, check_subscription
from headgate.catalog.classes import class_ids, definition
from headgate.catalog.database import CatalogError, writing
from headgate.catalog.difference import Start
from headgate.catalog.positions import dotted
from headgate.catalog.problems import suggestion
from headgate.catalog.profiles import BoundFilter, read_filter, row_limit_us
from headgate.catalog.sharing import SharedInboxes, is_shared
from headgate.filters.limits import is_number
from headgate.model import Stream, Subscription
from headgate.model.sharing import can_share, next_stay, wants_same
from headgate.wire import codec
from headgate.wire.identity import new_id

MAX_LEFT: Final = 64
"""How many stays a subscription may have left without a reader having come past them."""


@dataclass(slots=True)
class Change:
    """A change under way. `revision` is the one it makes if `made` is set; `result` is the head afterwards.

    `mark` tells that revision from another one of its number.
    """

    connection: sa.Connection
    revision: int
    start: Start
    made: bool = False
    mark: str = field(default_factory=new_id)

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
        change = Change(connection, connection.execute(locked).scalar_one() + 1, Start.of(connection))
        yield change
        if change.made:
            versions.record(connection, change.revision, what, change.mark)
            connection.execute(sa.update(tables.head).values(revision=change.revision))
            versions.forget(connection, change.revision - keep)


def refuse(what: str, findings: Iterable[Flaw]) -> None:
    """Raise the first finding, if there is one."""
    for finding in findings:
        where = f"{dotted(finding.path)}: " if finding.path else ""
        raise CatalogError(f"{what}: {where}{finding.message}", hint=finding.hint)


@dataclass(frozen=True, slots=True)
class CatalogView:
    """What subscriptions and plans are checked against: sites, streams, what a filter may cost for each row."""

    sites: frozenset[str]
    streams: dict[str, Stream]
    row_limit_us: float

    @property
    def roots(self) -> dict[str, str]:
        """The root site of each stream."""
        return {name: stream.root for name, stream in self.streams.items()}


def world(connection: sa.Connection) -> CatalogView:
    """The streams and sites in force."""
    bodies = versions.bodies(connection)
    streams = {
        name: codec.decode_stream(name, json.loads(body))
        for (kind, name), body in bodies.items()
        if kind == versions.STREAM
    }
    return CatalogView(
        sites=frozenset(name for kind, name in bodies if kind == versions.SITE),
        streams=streams,
        row_limit_us=row_limit_us(json.loads(bodies.get((versions.SETTINGS, ""), "{}")).get("options", {})),
    )


def class_of(connection: sa.Connection, subscription: Subscription, around: CatalogView) -> int:
    """The delivery class of a subscription that agrees with the streams and sites; a wrong one is refused."""
    return classes_of(connection, [subscription], around)[0]


def classes_of(connection: sa.Connection, subscriptions: Sequence[Subscription], around: CatalogView) -> list[int]:
    """The delivery classes of subscriptions that agree with the streams and sites; a wrong one is refused.

    Of many, those that differ in names and numbers of contexts only are checked once.
    """
    texts, limit_us = [], around.row_limit_us
    read: dict[str, BoundFilter] = {}
    plain: dict[str, str] = {}
    for each in subscriptions:
        refuse(f"subscription {each.name!r}", check_name(each.name))
        likeness = _likeness(each) if len(subscriptions) > 1 else None
        bound = None if likeness is None else read.get(likeness)
        if bound is None or likeness is None:
            refuse(f"subscription {each.name!r}", check_subscription(each, around.streams, around.sites, limit_us))
            bound = read_filter(each, around.streams[each.stream].schema, limit_us)
        elif each.context:
            bound = replace(bound, context={name: each.context[name] for name in bound.context})
        text = None if likeness is None else plain.get(likeness)
        text = text or definition(each, around.streams[each.stream], limit_us, bound)
        texts.append(text)
        if likeness is not None:
            read[likeness] = bound
            if not each.context:
                plain[likeness] = text
    known = class_ids(connection, texts)
    return [known[text] for text in texts]


def _likeness(subscription: Subscription) -> str | None:
    """A text that is equal for subscriptions which are checked alike; None where its name or its values decide."""
    context = subscription.context
    if subscription.context_from is not None:
        return None
    if context and (subscription.region or subscription.resolution or not all(map(is_number, context.values()))):
        return None
    types = {name: type(value).__name__ for name, value in context.items()}
    try:
        return body_of(replace(subscription, context=types) if context else subscription)
    except ValueError:  # a value that cannot be stored, which its check will say
        return None


def living(connection: sa.Connection, name: str) -> versions.SubscriptionLife:
    """The subscription of that name; an unknown one is refused with the nearest."""
    found = versions.life(connection, name)
    if found is None:
        known = sorted(life.name for life in versions.lives(connection))
        hint = suggestion(name, known, "subscriptions")
        raise CatalogError(f"unknown subscription {name!r}", hint=hint, kind="unknown")
    return found


def body_of(subscription: Subscription) -> str:
    """The stored form of a subscription."""
    return codec.dumps(codec.encode_subscription(subscription))


def replace_subscription(
    change: Change, subscription: Subscription, around: CatalogView, origin: str | None = None, reading: int = 0
) -> None:
    """Put another content under the name of a subscription.

    It keeps its id unless it is of another stream. Another site begins the next stay; `reading` is the stay that the
    reader has come to, so that those before it are forgotten.
    """
    found = living(change.connection, subscription.name)
    new_class = class_of(change.connection, subscription, around)
    origin = origin or found.origin
    before = codec.decode_subscription(found.name, json.loads(found.body))
    if subscription.owner not in ("", before.owner):
        raise CatalogError(f"the subscription {subscription.name!r} cannot be given to {subscription.owner!r}")
    subscription = replace(subscription, owner=before.owner)
    if before.stream == subscription.stream:
        placed = _placed(change, found, before, subscription, new_class, reading)
        body = body_of(placed)
        change.made |= versions.change_life(change.connection, found, origin, new_class, body, change.revision)
        return
    versions.end_life(change.connection, found, change.revision)
    shared = SharedInboxes(change.connection, [new_class]).find(subscription, new_class)
    body = body_of(replace(subscription, stay=0, left=(), shared=shared))
    versions.begin_life(change.connection, subscription.name, origin, new_class, body, change.revision)
    change.made = True


def _placed(
    change: Change,
    found: versions.SubscriptionLife,
    before: Subscription,
    now: Subscription,
    new_class: int,
    reading: int,
) -> Subscription:
    """The new content with its stays: one more at another site, or where others read its inbox and it wants other rows.

    At the same site it goes on in its inbox otherwise.
    """
    connection = change.connection
    if now.site == before.site:
        same = found.class_id == new_class and can_share(now) and wants_same(before, now)
        if same or (before.shared is None and not is_shared(connection, found.id, before.stay, found.class_id)):
            return replace(now, stay=before.stay, left=before.left, shared=before.shared)
    moved = next_stay(before, now, reading)
    if len(moved.left) > MAX_LEFT:
        raise CatalogError(
            f"subscription {now.name!r} has moved {len(moved.left)} times since it was last read",
            hint="read what waits for it first, or end it",
        )
    return replace(moved, shared=SharedInboxes(connection, [new_class]).find(moved, new_class))

"""The catalog: the one place that says which streams, sites, links, subscriptions and plan are in force.

Every change is one transaction that makes the next revision. A revision can be read as a `Snapshot` while it is recent;
everything that runs works from a snapshot and never from the database, so the catalog may be away while data flows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.apply import Bodies, apply_deployment, read_filed
from headgate.catalog.change import (
    Change,
    body_of,
    changing,
    class_of,
    living,
    refuse,
    replace_subscription,
    world,
)
from headgate.catalog.checks import check_plan
from headgate.catalog.database import REPAIR, CatalogError, open_database, reported, writing
from headgate.catalog.identity import (
    add_run,
    put_incarnation,
    read_identity,
    read_mark,
    read_runs,
    read_witness,
    write_witness,
)
from headgate.model import Deployment, Links, Plan, Subscription
from headgate.wire import codec
from headgate.wire.identity import Incarnation, Run
from headgate.wire.snapshot import Snapshot, decode_settings

KEPT_REVISIONS = 1000


class Catalog:
    """A catalog in a SQL database. Safe to use from several threads, and from several processes at once.

    Every writing method returns the revision in force afterwards; what changes nothing makes no new one.

    >>> with Catalog.open("sqlite://") as catalog:
    ...     catalog.head()
    0
    """

    def __init__(self, engine: sa.Engine, keep: int = KEPT_REVISIONS) -> None:
        self._engine = engine
        self._keep = keep
        self.guard: Callable[[], None] | None = None
        """Asked before a revision is made, inside of its transaction: what it raises leaves everything as it was."""

    @classmethod
    def open(cls, url: str, keep: int = KEPT_REVISIONS) -> Self:
        """Open the catalog at a database URL and bring its schema up to date; an SQLite file is made when missing.

        `keep` revisions before the current one stay readable; older ones are forgotten by the next change.
        """
        return cls(open_database(url), keep)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def head(self) -> int:
        """The current revision; 0 is an empty catalog."""
        with self._reading() as connection:
            return _head(connection)

    def snapshot(self, revision: int | None = None) -> Snapshot:
        """The catalog at a revision, by default the current one."""
        with self._reading() as connection:
            head = _head(connection)
            wanted = head if revision is None else revision
            oldest = max(0, head - self._keep)
            if not oldest <= wanted <= head:
                raise CatalogError(f"revision {wanted} is not kept", hint=f"revisions {oldest} to {head} are")
            return _snapshot(connection, wanted)

    def verify(self) -> None:
        """Read everything that is in force, and refuse a catalog that is damaged."""
        with self._reading() as connection:
            if connection.dialect.name == "sqlite":
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
                if found != "ok":
                    raise CatalogError(f"the catalog is damaged: {found}", hint=REPAIR)
            _snapshot(connection, _head(connection))
            read_filed(connection)

    def mark(self, revision: int) -> str | None:
        """The mark of a revision, None when it is not kept."""
        with self._reading() as connection:
            return read_mark(connection, revision)

    def filed(self) -> Bodies:
        """The deployment file as it was last applied."""
        with self._reading() as connection:
            return read_filed(connection)

    def witness(self) -> dict[str, int]:
        """The last sequence number that was seen in each log."""
        with self._reading() as connection:
            return read_witness(connection)

    def set_witness(self, seen: Mapping[str, int]) -> None:
        """Remember how far every log has got. This is no change of what is in force: it makes no revision."""
        with reported(self._engine.url), writing(self._engine) as connection:
            write_witness(connection, seen)

    def runs(self) -> list[Run]:
        """The starts of the service that are remembered, oldest first."""
        with self._reading() as connection:
            return read_runs(connection)

    def begin_run(self, heads: Mapping[str, int], published: Sequence[Run] = ()) -> list[Run]:
        """Remember a start of the service, with the last committed sequence number of each stream.

        `published` is what NATS knows of the starts before: more than this catalog, if it is from a backup.
        """
        with reported(self._engine.url), writing(self._engine) as connection:
            return add_run(connection, heads, published)

    def begin_incarnations(self, incarnations: Mapping[str, Incarnation]) -> int:
        """Put new incarnations of streams in force."""
        with self._changing(f"new incarnations of {', '.join(sorted(incarnations))}") as change:
            for stream, incarnation in incarnations.items():
                change.made |= put_incarnation(change.connection, stream, incarnation, change.revision)
        return change.result

    def apply(self, deployment: Deployment, incarnations: Mapping[str, Incarnation] | None = None) -> int:
        """Make the catalog agree with a deployment file; `incarnations` are those of its new streams.

        Only what the file says differently from the last time it was applied is changed. So applying the same file
        again changes nothing, and what was added, changed or planned while running stays.
        """
        with self._changing("apply") as change:
            apply_deployment(change, deployment)
            for stream, incarnation in (incarnations or {}).items():
                change.made |= put_incarnation(change.connection, stream, incarnation, change.revision)
        return change.result

    def subscribe(self, subscription: Subscription) -> int:
        """Add a subscription under a new name."""
        with self._changing(f"subscribe {subscription.name}") as change:
            if versions.life(change.connection, subscription.name) is not None:
                hint = "change that one, or choose another name"
                raise CatalogError(f"there is already a subscription {subscription.name!r}", hint=hint)
            found = class_of(change.connection, subscription, world(change.connection))
            body = body_of(subscription)
            versions.begin_life(change.connection, subscription.name, "live", found, body, change.revision)
            change.made = True
        return change.result

    def change(self, subscription: Subscription, reading: int = 0) -> int:
        """Replace a subscription by another of its name. It keeps its id unless it is of another stream.

        At another site it begins its next stay; those before `reading`, where its reader is, are forgotten.
        """
        with self._changing(f"change {subscription.name}") as change:
            replace_subscription(change, subscription, world(change.connection), reading=reading)
        return change.result

    def move(self, name: str, site: str, reading: int = 0) -> int:
        """Deliver a subscription at another site from this revision on; see `change`."""
        with self._changing(f"move {name} to {site}") as change:
            old = codec.decode_subscription(name, json.loads(living(change.connection, name).body))
            replace_subscription(change, replace(old, site=site), world(change.connection), reading=reading)
        return change.result

    def set_context(self, name: str, values: Mapping[str, Any]) -> int:
        """Give values of a subscription's context; those that are not given stay as they are."""
        with self._changing(f"set context of {name}") as change:
            old = codec.decode_subscription(name, json.loads(living(change.connection, name).body))
            new = replace(old, context={**old.context, **values})
            replace_subscription(change, new, world(change.connection))
        return change.result

    def fold_contexts(self, contexts: Mapping[str, Mapping[str, Any]], places: Mapping[str, int]) -> int:
        """Take over contexts that were updated through the root logs, up to a place in each stream's log.

        `contexts` are all values of each named subscription. Their classes stay what they are: class ids name the
        subscriber's filter, the log its values.
        """
        with self._changing("contexts") as change:
            for name, values in contexts.items():
                found = versions.life(change.connection, name)
                if found is None:
                    continue
                old = codec.decode_subscription(name, json.loads(found.body))
                body = body_of(replace(old, context=dict(values)))
                change.made |= versions.change_life(
                    change.connection, found, found.origin, found.class_id, body, change.revision
                )
            for stream, place in places.items():
                change.made |= versions.put(change.connection, versions.CONTEXT, stream, str(place), change.revision)
        return change.result

    def unsubscribe(self, name: str) -> int:
        """Remove a subscription; its id is never used again."""
        with self._changing(f"unsubscribe {name}") as change:
            versions.end_life(change.connection, living(change.connection, name), change.revision)
            change.made = True
        return change.result

    def set_plan(self, plan: Plan) -> int:
        """Replace the delivery trees of all streams."""
        with self._changing("plan") as change:
            around = world(change.connection)
            refuse("plan", check_plan(plan, around.roots, around.sites))
            old = {name for kind, name in versions.bodies(change.connection) if kind == versions.TREE}
            for name in sorted(old | set(plan.trees)):
                tree = plan.trees.get(name)
                body = None if tree is None else codec.dumps(codec.encode_tree(tree))
                change.made |= versions.put(change.connection, versions.TREE, name, body, change.revision)
        return change.result

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with reported(self._engine.url), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def _changing(self, what: str) -> Iterator[Change]:
        with reported(self._engine.url), changing(self._engine, what, self._keep) as change:
            yield change
            if change.made and self.guard is not None:
                self.guard()


def _head(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(tables.head.c.revision)).scalar_one())


def _snapshot(connection: sa.Connection, revision: int) -> Snapshot:
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

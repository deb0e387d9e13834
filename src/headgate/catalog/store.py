"""The catalog: the one place that says which streams, sites, links, subscriptions and plan are in force.

Every change is one transaction that makes the next revision. A revision can be read as a `Snapshot` while it is recent;
everything that runs works from a snapshot and never from the database, so the catalog may be away while data flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from headgate.catalog.change import changing
from headgate.catalog.database import CatalogError, open_database, reported
from headgate.catalog.edit import Edit
from headgate.catalog.reading import read_answer, read_head, read_snapshot
from headgate.model import Deployment, Plan, Subscription
from headgate.wire.snapshot import Snapshot

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
            return read_head(connection)

    def snapshot(self, revision: int | None = None) -> Snapshot:
        """The catalog at a revision, by default the current one."""
        with self._reading() as connection:
            head = read_head(connection)
            wanted = head if revision is None else revision
            oldest = max(0, head - self._keep)
            if not oldest <= wanted <= head:
                raise CatalogError(f"revision {wanted} is not kept", hint=f"revisions {oldest} to {head} are")
            return read_snapshot(connection, wanted)

    def apply(self, deployment: Deployment) -> int:
        """Make the catalog agree with a deployment file.

        Only what the file says differently from the last time it was applied is changed. So applying the same file
        again changes nothing, and what was added, changed or planned while running stays.
        """
        with self.edit("apply") as edit:
            edit.apply(deployment)
        return edit.revision

    def subscribe(self, subscription: Subscription) -> int:
        """Add a subscription under a new name."""
        with self.edit(f"subscribe {subscription.name}") as edit:
            edit.subscribe(subscription)
        return edit.revision

    def change(self, subscription: Subscription, reading: int = 0) -> int:
        """Replace a subscription by another of its name; see `Edit.change`."""
        with self.edit(f"change {subscription.name}") as edit:
            edit.change(subscription, reading)
        return edit.revision

    def move(self, name: str, site: str, reading: int = 0) -> int:
        """Deliver a subscription at another site from this revision on; see `Edit.change`."""
        with self.edit(f"move {name} to {site}") as edit:
            edit.move(name, site, reading)
        return edit.revision

    def set_context(self, name: str, values: Mapping[str, Any]) -> int:
        """Give values of a subscription's context; those that are not given stay as they are."""
        with self.edit(f"set context of {name}") as edit:
            edit.set_context(name, values)
        return edit.revision

    def fold_contexts(self, contexts: Mapping[str, Mapping[str, Any]], places: Mapping[str, int]) -> int:
        """Take over contexts that were updated through the root logs; see `Edit.fold_contexts`."""
        with self.edit("contexts") as edit:
            edit.fold_contexts(contexts, places)
        return edit.revision

    def unsubscribe(self, name: str) -> int:
        """Remove a subscription; its id is never used again."""
        with self.edit(f"unsubscribe {name}") as edit:
            edit.unsubscribe(name)
        return edit.revision

    def set_plan(self, plan: Plan) -> int:
        """Replace the delivery trees of all streams."""
        with self.edit("plan") as edit:
            edit.set_plan(plan)
        return edit.revision

    def answer(self, request: str) -> dict[str, Any] | None:
        """What the request of an id was answered (`Edit.answered`), None when nothing is known of it."""
        with self._reading() as connection:
            return read_answer(connection, request)

    @contextmanager
    def edit(self, what: str) -> Iterator[Edit]:
        """Change as much as it takes in one transaction that makes one revision; an exception undoes all of it."""
        with reported(self._engine.url), changing(self._engine, what, self._keep) as change:
            yield Edit(change)
            if change.made and self.guard is not None:
                self.guard()

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with reported(self._engine.url), self._engine.connect() as connection, connection.begin():
            yield connection

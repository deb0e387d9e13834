"""The catalog: the one place that says which streams, sites, links, subscriptions and plan are in force.

Every change is one transaction that makes the next revision. A revision can be read as a `Snapshot` while it is recent;
everything that runs works from a snapshot and never from the database, so the catalog may be away while data flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import sqlalchemy as sa

from headgate.catalog.apply import Bodies, read_filed
from headgate.catalog.change import changing
from headgate.catalog.database import REPAIR, CatalogError, open_database, reported, writing
from headgate.catalog.edit import Edit
from headgate.catalog.identity import add_run, read_mark, read_runs, read_witness, write_witness
from headgate.catalog.reading import PlanChange, read_answer, read_head, read_plans, read_snapshot
from headgate.catalog.revision_reading import Draft, KnownRevision, read_known
from headgate.closing import Closing
from headgate.model import Deployment, Plan, Subscription
from headgate.wire.identity import Incarnation, Run
from headgate.wire.snapshot import Snapshot

KEPT_REVISIONS = 1000


class Catalog(Closing):
    """A catalog in a SQL database. Safe to use from several threads, and from several processes at once.

    Every writing method returns the revision in force afterwards; what changes nothing makes no new one.

    >>> with Catalog.open("sqlite://") as catalog:
    ...     catalog.head()
    0
    """

    def __init__(self, engine: sa.Engine, keep: int = KEPT_REVISIONS) -> None:
        self._engine = engine
        self._keep = keep
        self._known: KnownRevision | None = None
        self._draft: Draft | None = None
        self.guard: Callable[[], None] | None = None
        """Asked before a revision is made, inside of its transaction: what it raises leaves everything as it was."""
        self.recorder: Callable[[str, Edit], None] | None = None
        """Told of a revision before it is made, inside of its transaction: what, and the change with its author."""

    @classmethod
    def open(cls, url: str, keep: int = KEPT_REVISIONS) -> Self:
        """Open the catalog at a database URL and bring its schema up to date; an SQLite file is made when missing.

        `keep` revisions before the current one stay readable; older ones are forgotten by the next change.
        """
        return cls(open_database(url), keep)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

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
            if wanted < head:
                return read_snapshot(connection, wanted)
            self._known = known = read_known(connection, self._known, self._keep, self._draft)
            self._draft = None
            return known.snapshot

    def plans(self, limit: int) -> list[PlanChange]:
        """The last changes of the plan, newest first, as far back as revisions are kept."""
        with self._reading() as connection:
            return read_plans(connection, max(0, read_head(connection) - self._keep), limit)

    def verify(self) -> None:
        """Read everything that is in force, and refuse a catalog that is damaged."""
        with self._reading() as connection:
            if connection.dialect.name == "sqlite":
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
                if found != "ok":
                    raise CatalogError(f"the catalog is damaged: {found}", hint=REPAIR)
            read_snapshot(connection, read_head(connection))
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
        with self.edit(f"new incarnations of {', '.join(sorted(incarnations))}") as edit:
            edit.begin_incarnations(incarnations)
        return edit.revision

    def apply(self, deployment: Deployment, incarnations: Mapping[str, Incarnation] | None = None) -> int:
        """Make the catalog agree with a deployment file; `incarnations` are those of its new streams.

        Only what the file says differently from the last time it was applied is changed. So applying the same file
        again changes nothing, and what was added, changed or planned while running stays.
        """
        with self.edit("apply") as edit:
            edit.apply(deployment, incarnations)
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
            edit = Edit(change, self._known, self._keep)
            yield edit
            if change.made and self.guard is not None:
                self.guard()
            if change.made and self.recorder is not None:
                self.recorder(what, edit)
        self._draft = Draft(edit.draft, change.mark) if change.made and edit.draft is not None else None

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with reported(self._engine.url), self._engine.connect() as connection, connection.begin():
            yield connection

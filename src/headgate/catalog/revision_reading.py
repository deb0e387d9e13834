"""A revision read from the one before it: what was changed since is read, everything else is what it was.

Reading the whole catalog takes longer with every subscription. A change reads it three times, to extend the plan and to
publish it, so whoever holds an older revision only looks at rows that were written or ended since then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.identity import read_identity, read_mark
from headgate.catalog.reading import read_head, read_snapshot
from headgate.model import Subscription
from headgate.wire.snapshot import Snapshot
from headgate.wire.subscription_texts import SubscriptionTexts


@dataclass(frozen=True, slots=True)
class KnownRevision:
    """A revision that was read, the mark that tells it from another of its number, and the newest content then."""

    snapshot: Snapshot
    mark: str | None
    content: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A revision as the change that made it read it last; `mark` tells it from another of its number."""

    snapshot: Snapshot
    mark: str


def read_known(
    connection: sa.Connection, known: KnownRevision | None, keep: int, draft: Draft | None = None
) -> KnownRevision:
    """The current revision; what it changed since an older one that is still kept is all that is read.

    Where it is that of a `draft` nothing is read again but what a revision gets when it is made.
    """
    # First where contents end: one that is written meanwhile is then read twice, and not left out.
    newest = connection.execute(sa.select(sa.func.max(tables.subscription_version.c.id))).scalar() or 0
    revision = read_head(connection)
    mark = read_mark(connection, revision)
    if draft is not None and draft.mark == mark and draft.snapshot.revision == revision:
        identity = read_identity(connection, revision, draft.snapshot.identity.incarnations)
        return KnownRevision(replace(draft.snapshot, identity=identity), mark, int(newest))
    return KnownRevision(read_newer(connection, known, revision, keep), mark, int(newest))


def read_newer(connection: sa.Connection, known: KnownRevision | None, revision: int, keep: int) -> Snapshot:
    """The catalog at a revision, which may be of a change that is under way."""
    if known is None or not _follows(connection, known, revision, keep):
        return read_snapshot(connection, revision)
    before = known.snapshot
    if before.revision == revision:
        return before
    subscriptions = dict(before.deployment.subscriptions)
    ids, classes = dict(before.subscription_ids), dict(before.class_ids)
    for name in versions.ended_since(connection, before.revision, revision):
        for each in (subscriptions, ids, classes):
            each.pop(name, None)
    fresh: dict[str, Subscription] = {}
    texts = SubscriptionTexts()
    for life in versions.lives(connection, revision, after=known.content):
        fresh[life.name] = texts.read(life.name, life.body)
        ids[life.name], classes[life.name] = life.id, life.class_id
    rest = read_snapshot(connection, revision, subscriptions=False)
    deployment = replace(rest.deployment, subscriptions={**subscriptions, **fresh})
    return replace(rest, deployment=deployment, subscription_ids=ids, class_ids=classes)


def _follows(connection: sa.Connection, known: KnownRevision, revision: int, keep: int) -> bool:
    """Whether everything that was ended since is still there, and the older revision is of this catalog's past."""
    first = known.snapshot.revision
    return revision - keep <= first <= revision and first > 0 and read_mark(connection, first) == known.mark

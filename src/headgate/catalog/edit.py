"""Changes of the catalog that are made together: one transaction and one revision, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.apply import apply_deployment, declare
from headgate.catalog.change import Change, body_of, classes_of, living, refuse, replace_subscription, world
from headgate.catalog.checks import check_plan
from headgate.catalog.database import CatalogError
from headgate.catalog.difference import Changed, difference
from headgate.catalog.identity import put_incarnation
from headgate.catalog.revision_reading import KnownRevision, read_newer
from headgate.catalog.sharing import SharedInboxes
from headgate.model import Deployment, Plan, Subscription
from headgate.model.sharing import can_share, next_stay
from headgate.wire import codec
from headgate.wire.identity import Incarnation
from headgate.wire.snapshot import Snapshot

KEPT_REQUESTS: Final = 10_000
"""How many of the last answered requests are remembered."""


class Edit:
    """A change under way, of as many steps as it takes; each step sees those before it. `Catalog.edit` makes one."""

    def __init__(self, change: Change, known: KnownRevision | None = None, keep: int = 0) -> None:
        """`known` is a revision before it, of which `keep` are readable: what it says need not be read again."""
        self._under_way = change
        self._draft: Snapshot | None = None
        self._known = known
        self._keep = keep
        self._connection = change.connection
        self._folded: dict[str, str] = {}
        self.author: Any = None
        """Who makes this change, for whoever records it; None is the service itself."""

    @property
    def made(self) -> bool:
        """Whether anything was changed so far."""
        return self._under_way.made

    @property
    def revision(self) -> int:
        """The revision in force afterwards; what changes nothing makes no new one."""
        return self._under_way.result

    @property
    def draft(self) -> Snapshot | None:
        """The catalog as it was last read, None where it was not or something was changed since."""
        return self._draft

    @property
    def _change(self) -> Change:
        """The change, for a step that changes something: what was read before is no longer so."""
        self._draft = None
        return self._under_way

    def snapshot(self) -> Snapshot:
        """The catalog as this change leaves it, as far as it has come."""
        if self._draft is None:
            self._draft = read_newer(self._connection, self._known, self.revision, self._keep)
        return self._draft

    def apply(self, deployment: Deployment, incarnations: Mapping[str, Incarnation] | None = None) -> None:
        """Make the catalog agree with a deployment file; see `Catalog.apply`."""
        apply_deployment(self._change, deployment)
        self.begin_incarnations(incarnations or {})

    def declare(self, deployment: Deployment, incarnations: Mapping[str, Incarnation] | None = None) -> None:
        """Change streams, sites, links and settings to what they are in a deployment; its other parts stay."""
        declare(self._change, deployment)
        self.begin_incarnations(incarnations or {})

    def begin_incarnations(self, incarnations: Mapping[str, Incarnation]) -> None:
        """Put new incarnations of streams in force."""
        for stream, incarnation in incarnations.items():
            change = self._change
            change.made |= put_incarnation(change.connection, stream, incarnation, change.revision)

    def subscribe(self, *subscriptions: Subscription) -> dict[str, int]:
        """Add subscriptions under new names, and return their ids by name."""
        names = [each.name for each in subscriptions]
        taken = versions.names_in_force(self._connection, names)
        if taken or len(set(names)) < len(names):
            name = taken[0] if taken else next(each for each in names if names.count(each) > 1)
            hint = "change that one, or choose another name"
            raise CatalogError(f"there is already a subscription {name!r}", hint=hint, kind="conflict")
        if not names:
            return {}
        classes = classes_of(self._connection, subscriptions, world(self._connection))
        ids = versions.new_ids(self._connection, names, "live", self._change.revision)
        inboxes, lives = SharedInboxes(self._connection, classes), []
        placed: dict[str, str] = {}  # those that want the same share one inbox: it is looked for once
        for each, found in zip(subscriptions, classes, strict=True):
            body = body_of(each)
            if body in placed:
                lives.append((each.name, found, placed[body]))
                continue
            shared = inboxes.find(each, found)
            lives.append((each.name, found, body if shared is None else body_of(replace(each, shared=shared))))
            if shared is None:
                inboxes.add(ids[each.name], found, each)
                shared = (ids[each.name], each.stay)
            if can_share(each):
                placed[body] = body_of(replace(each, shared=shared))
        versions.begin_lives(self._connection, ids, lives, self._change.revision)
        self._change.made = True
        return ids

    def change(self, subscription: Subscription, reading: int = 0) -> None:
        """Replace a subscription by another of its name. It keeps its id unless it is of another stream.

        At another site it begins its next stay; those before `reading`, where its reader is, are forgotten.
        """
        replace_subscription(self._change, subscription, world(self._connection), reading=reading)

    def move(self, name: str, site: str, reading: int = 0) -> None:
        """Deliver a subscription at another site from this revision on; see `change`."""
        self.change(replace(self.subscription(name), site=site), reading)

    def part(self, readings: Mapping[str, int]) -> None:
        """Give subscriptions that share an inbox with others another one, which they share among themselves.

        By name, the stays that their readers have come to.
        """
        shared: tuple[int, int] | None = None
        for name, reading in readings.items():
            found = living(self._connection, name)
            before = codec.decode_subscription(name, json.loads(found.body))
            moved = replace(next_stay(before, before, reading), shared=shared)
            body, change = body_of(moved), self._change
            change.made |= versions.change_life(
                self._connection, found, found.origin, found.class_id, body, change.revision
            )
            shared = shared or (found.id, moved.stay)

    def set_context(self, name: str, values: Mapping[str, Any]) -> None:
        """Give values of a subscription's context; those that are not given stay as they are."""
        old = self.subscription(name)
        self.change(replace(old, context={**old.context, **values}))

    def fold_contexts(self, contexts: Mapping[str, Mapping[str, Any]], places: Mapping[str, int]) -> None:
        """Take over contexts that were updated through the root logs, up to a place in each stream's log.

        `contexts` are all values of each named subscription. Their classes stay what they are: class ids name the
        subscriber's filter, the log its values.
        """
        change = self._change
        for name, values in contexts.items():
            found = versions.life(self._connection, name)
            if found is None:
                continue
            old = codec.decode_subscription(name, json.loads(found.body))
            body = self._folded[name] = body_of(replace(old, context=dict(values)))
            change.made |= versions.change_life(
                self._connection, found, found.origin, found.class_id, body, change.revision
            )
        for stream, place in places.items():
            change.made |= versions.put(self._connection, versions.CONTEXT, stream, str(place), change.revision)

    def unsubscribe(self, name: str) -> None:
        """Remove a subscription; its id is never used again."""
        versions.end_life(self._connection, living(self._connection, name), self._change.revision)
        self._change.made = True

    def set_plan(self, plan: Plan) -> None:
        """Replace the delivery trees of all streams."""
        around = world(self._connection)
        refuse("plan", check_plan(plan, around.roots, around.sites))
        old = {name for kind, name in versions.bodies(self._connection) if kind == versions.TREE}
        for name in sorted(old | set(plan.trees)):
            tree = plan.trees.get(name)
            body = None if tree is None else codec.dumps(codec.encode_tree(tree))
            self._change.made |= versions.put(self._connection, versions.TREE, name, body, self._change.revision)

    def answered(self, request: str, answer: Mapping[str, Any]) -> None:
        """Remember what a request was answered, together with what it changed; the oldest ones are forgotten."""
        table = tables.request
        made = sa.insert(table).values(request=request, answer=codec.dumps(answer)).returning(table.c.id)
        newest = self._connection.execute(made).scalar_one()
        self._connection.execute(sa.delete(table).where(table.c.id <= newest - KEPT_REQUESTS))

    def subscription(self, name: str) -> Subscription:
        """The subscription of a name as it is by now; an unknown one is refused with the nearest."""
        return codec.decode_subscription(name, json.loads(living(self._connection, name).body))

    def difference(self) -> list[Changed]:
        """Every document that was changed so far, before and after, but for contexts that were taken over."""
        found = difference(self._connection, self._under_way.start, self._under_way.revision)
        folded = {(versions.SUBSCRIPTION, name): body for name, body in self._folded.items()}
        return [
            each
            for each in found
            if each.kind != versions.CONTEXT and folded.get((each.kind, each.name), "") != each.after
        ]

    def identity(self, name: str) -> int:
        """The id of a subscription."""
        return living(self._connection, name).id

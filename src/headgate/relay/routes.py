"""Routing tables: what a site does with a stream's blocks under one version of the catalog.

A version determines everything that both ends of an output must agree on: who is below a link, which classes and
columns it carries, and each subscription's class and projection. Nothing of that is sent with the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.model import LinkQueue, Schema, Stream, Subscription, Tree
from headgate.model.site import NO_LIMITS
from headgate.model.start import NOW
from headgate.reduction.constant_thinning import Thinning
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True)
class Receiver:
    """A subscription as a relay sees it."""

    id: int
    class_id: int
    subscription: Subscription
    schema: pa.Schema
    thinning: Thinning | None = None
    members: tuple[tuple[int, int], ...] = ()
    """Of an inbox that several share: the subscriptions that read it under the version, and their stays."""

    @property
    def inbox(self) -> tuple[int, int]:
        """The subscription, and its stay, whose inbox its rows go into."""
        return self.subscription.present.inbox_of(self.id)

    @property
    def readers(self) -> tuple[tuple[int, int], ...]:
        """Who reads that inbox, as far as this receiver stands for them, and in which of their stays."""
        return self.members or ((self.id, self.subscription.stay),)


@dataclass(frozen=True)
class Child:
    """A link down the tree: the receivers below it, the columns that any of them needs, and the limits of its queue."""

    site: str
    receivers: tuple[Receiver, ...]
    schema: pa.Schema
    queue: LinkQueue = NO_LIMITS

    @cached_property
    def class_ids(self) -> npt.NDArray[np.uint32]:
        """Sorted ids of the classes below the link."""
        return np.unique(np.array([receiver.class_id for receiver in self.receivers], dtype=np.uint32))

    @cached_property
    def receiver_ids(self) -> frozenset[int]:
        """The subscriptions below the link."""
        return frozenset(receiver.id for receiver in self.receivers)

    @cached_property
    def needing(self) -> Mapping[str, npt.NDArray[np.uint32]]:
        """For each column, the sorted ids of the classes below the link that have a receiver who wants it."""
        return {
            name: np.unique(
                np.array([each.class_id for each in self.receivers if name in each.schema.names], dtype=np.uint32)
            )
            for name in self.schema.names
        }

    @cached_property
    def receivers_of(self) -> Mapping[int, tuple[int, ...]]:
        """Subscriptions below the link by class."""
        found: dict[int, list[int]] = {}
        for receiver in self.receivers:
            found.setdefault(receiver.class_id, []).append(receiver.id)
        return {class_id: tuple(ids) for class_id, ids in found.items()}


@dataclass(frozen=True)
class Routes:
    """What one site does with one stream under one version. `schema` is what arrives; `parent` None is the root."""

    site: str
    stream: str
    version: int
    parent: str | None
    schema: pa.Schema
    children: tuple[Child, ...]
    local: tuple[Receiver, ...]

    @property
    def targets(self) -> tuple[Child | Receiver, ...]:
        """Everything that the site passes blocks on to."""
        return (*self.children, *self.inboxes)

    @cached_property
    def inboxes(self) -> tuple[Receiver, ...]:
        """The inboxes at the site, each as one receiver however many subscriptions share it.

        The receiver of a shared inbox has the id of the subscription whose inbox it is, which may have left it.
        """
        found: dict[tuple[int, int], list[Receiver]] = {}
        for receiver in self.local:
            found.setdefault(receiver.inbox, []).append(receiver)
        return tuple(_together(inbox, receivers) for inbox, receivers in found.items())

    @cached_property
    def readers(self) -> Mapping[tuple[int, int], frozenset[tuple[int, int]]]:
        """By inbox at the site, the subscriptions that read it and their stays."""
        return {each.inbox: frozenset(each.readers) for each in self.inboxes}

    @cached_property
    def of_the_past(self) -> tuple[Receiver, ...]:
        """Who at the site wants rows from before its first block."""
        return tuple(each for each in self.local if each.subscription.start != NOW)

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        """Everybody whose rows pass the site: at it, and below it."""
        return (*self.local, *(receiver for child in self.children for receiver in child.receivers))


def _together(inbox: tuple[int, int], receivers: list[Receiver]) -> Receiver:
    """The receivers of one inbox as one."""
    first = receivers[0]
    if len(receivers) == 1 and first.id == inbox[0]:
        return first
    members = tuple((each.id, each.subscription.stay) for each in receivers)
    shared = replace(first.subscription, shared=inbox)
    return replace(first, id=inbox[0], subscription=shared, members=members)


Target = Child | Receiver
"""What an output leads to."""


def stream_receivers(
    snapshot: Snapshot, stream: str, known: Mapping[int, Receiver] | None = None
) -> dict[str, list[Receiver]]:
    """The receivers of a stream by site; those that are `known` from another version are the same objects.

    Outputs that meet the same receiver again have nothing to look up anew.
    """
    whole = snapshot.deployment.streams[stream]
    schema = whole.schema
    known = known or {}
    selected: dict[tuple[str, ...] | None, pa.Schema] = {}
    found: dict[str, list[Receiver]] = {}
    for name, subscription in snapshot.deployment.subscriptions.items():
        if subscription.stream == stream:
            columns = selected.get(subscription.select)
            if columns is None:
                columns = selected[subscription.select] = schema.select(subscription.select).arrow
            fresh = Receiver(
                snapshot.subscription_ids[name],
                snapshot.class_ids[name],
                subscription,
                columns,
                _thinning(subscription, whole, columns.names),
            )
            receiver = known.get(fresh.id)
            if receiver is None or not _is_same(receiver, fresh):
                receiver = fresh
            found.setdefault(subscription.site, []).append(receiver)
    return found


def _is_same(receiver: Receiver, other: Receiver) -> bool:
    if receiver.class_id != other.class_id or receiver.thinning != other.thinning:
        return False
    if receiver.schema is not other.schema and receiver.schema != other.schema:
        return False
    return receiver.subscription is other.subscription or receiver.subscription == other.subscription


def _thinning(subscription: Subscription, stream: Stream, columns: Sequence[str]) -> Thinning | None:
    """What a subscription asks to be thinned by, None where it does not; a grant may have taken columns from it."""
    every_s, at_most = subscription.every_s, subscription.at_most_rows_per_s
    average_s = subscription.average_s
    if every_s is None and at_most is None and average_s is None:
        return None
    key = tuple(name for name in stream.key if name in columns)
    return Thinning(every_s, at_most, key, stream.event_time if stream.event_time in columns else None, average_s)


def _union(schema: Schema, receivers: list[Receiver]) -> pa.Schema:
    wanted = {name for receiver in receivers for name in receiver.schema.names}
    return schema.select([name for name in schema.names if name in wanted]).arrow


def _child(
    snapshot: Snapshot, tree: Tree, site: str, child: str, receivers: Mapping[str, list[Receiver]]
) -> Child | None:
    """A site below another one as what it passes blocks on to, None when nobody there wants any."""
    below = [receiver for member in (child, *tree.below(child)) for receiver in receivers.get(member, [])]
    if not below:
        return None
    schema, queue = (
        snapshot.deployment.streams[tree.stream].schema,
        snapshot.deployment.links.queue_between(site, child),
    )
    return Child(child, tuple(below), _union(schema, below), queue)


def build_stand_in(snapshot: Snapshot, site: str, stream: str, child: str) -> Child | None:
    """A site that hangs somewhere below another one, as if it were its child; None where it does not.

    Everything that a site below needs passes the sites above it, with all that was given up of it on the way. So each
    of them can serve it in place of its parent, under the same version.
    """
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    if tree is None or child not in tree.below(site):
        return None
    return _child(snapshot, tree, site, child, stream_receivers(snapshot, stream))


def build_routes(
    snapshot: Snapshot, site: str, stream: str, receivers: Mapping[str, list[Receiver]] | None = None
) -> Routes | None:
    """The routes of a site for a stream, None when the site is not in the stream's tree.

    `receivers` are those of the stream by site, where they are known.
    """
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    if tree is None or (site != tree.root and site not in tree.parents):
        return None
    receivers = stream_receivers(snapshot, stream) if receivers is None else receivers
    schema = snapshot.deployment.streams[stream].schema
    children = [found for child in tree.children(site) if (found := _child(snapshot, tree, site, child, receivers))]
    local = tuple(receivers.get(site, []))
    everyone = [*local, *(receiver for child in children for receiver in child.receivers)]
    parent = tree.parents.get(site)
    return Routes(
        site,
        stream,
        snapshot.revision,
        parent,
        schema.arrow if parent is None else _union(schema, everyone),
        tuple(children),
        local,
    )

"""Routing tables: what a site does with a stream's blocks under one version of the catalog.

A version determines everything that both ends of an output must agree on: who is below a link, which classes and
columns it carries, and each subscription's class and projection. Nothing of that is sent with the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.model import LinkQueue, Schema, Subscription, Tree
from headgate.model.site import NO_LIMITS
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True)
class Receiver:
    """A subscription as a relay sees it."""

    id: int
    class_id: int
    subscription: Subscription
    schema: pa.Schema


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
        return (*self.children, *self.local)

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        """Everybody whose rows pass the site: at it, and below it."""
        return (*self.local, *(receiver for child in self.children for receiver in child.receivers))


Target = Child | Receiver
"""What an output leads to."""


def stream_receivers(snapshot: Snapshot, stream: str) -> dict[str, list[Receiver]]:
    """The receivers of a stream by site."""
    schema = snapshot.deployment.streams[stream].schema
    found: dict[str, list[Receiver]] = {}
    for name, subscription in snapshot.deployment.subscriptions.items():
        if subscription.stream == stream:
            receiver = Receiver(
                snapshot.subscription_ids[name],
                snapshot.class_ids[name],
                subscription,
                schema.select(subscription.select).arrow,
            )
            found.setdefault(subscription.site, []).append(receiver)
    return found


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


def build_routes(snapshot: Snapshot, site: str, stream: str) -> Routes | None:
    """The routes of a site for a stream, None when the site is not in the stream's tree."""
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    if tree is None or (site != tree.root and site not in tree.parents):
        return None
    receivers = stream_receivers(snapshot, stream)
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

"""What a user sees of documents that are everybody's: its own part of them, and nothing of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from headgate.catalog.granting import as_asked, stream_for
from headgate.fabric.registry import ANY, User
from headgate.model import Admission, Deployment, Grant, Narrowed, Site, Source, Stream, Subscription
from headgate.model.roots import OPTION, root_region
from headgate.model.stream import DERIVE
from headgate.service.grants import grant_of, granted_name
from headgate.service.rights import owned_by
from headgate.wire.identity import decode_runs, encode_runs
from headgate.wire.manifest import Manifest, decode_manifest, encode_manifest
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched

# What a publisher needs to know of a source: how rows are to be written, and whether it is another server's.
_SHOWN_OPTIONS: Final = ("payload", "url", "log", "subject")
_SHOWN_SETTINGS: Final = ("grid", "gridding", DERIVE, OPTION)


def visible_streams(snapshot: Snapshot, user: User) -> set[str]:
    """The streams that a user may know of: of its subscriptions, and those that it was granted."""
    granted = {*user.subscribes, *user.published}
    found = {each.stream for each in owned_by(snapshot, user.name).values()}
    for name, stream in snapshot.deployment.streams.items():
        region = root_region(stream)
        if granted & {name, ANY} or (region is not None and region.of in granted):
            found.add(name)
    return found & snapshot.deployment.streams.keys()


def snapshot_for(snapshot: Snapshot, user: User) -> Snapshot:
    """A revision of the catalog as a user sees it: its subscriptions, its streams without where they come from."""
    owned, seen = owned_by(snapshot, user.name), visible_streams(snapshot, user)
    declared = snapshot.deployment.streams
    mine = {name: subscription_for(each, user, declared[each.stream]) for name, each in owned.items()}
    streams = {name: _shown(stream_for(declared[name], known_of(user, declared[name]))) for name in sorted(seen)}
    sites = {stream.root for stream in streams.values()}.union(
        *({stay.site for stay in each.stays} for each in mine.values())
    )
    incarnations = {name: each for name, each in snapshot.identity.incarnations.items() if name in seen}
    return Snapshot(
        revision=snapshot.revision,
        deployment=Deployment(streams, {name: Site(name) for name in sorted(sites)}, subscriptions=mine),
        subscription_ids={name: snapshot.subscription_ids[name] for name in mine},
        class_ids={name: snapshot.class_ids[name] for name in mine},
        identity=replace(snapshot.identity, last_subscription=0, last_class=0, incarnations=incarnations),
    )


def known_of(user: User, stream: Stream) -> Grant:
    """What a user may know of a stream: what it may subscribe to or, as it publishes all of them, every column."""
    name = granted_name(stream)
    return Grant() if {name, ANY} & user.published else user.grant(name)


def subscription_for(subscription: Subscription, user: User, stream: Stream) -> Subscription:
    """A subscription as its owner sees it: as it was asked for, with the columns that its messages have for the owner.

    The grant itself stays unsaid, as it may name what its user may not know of.
    """
    grant = grant_of(user, stream)
    names = stream.schema.names if subscription.select is None else subscription.select
    visible = tuple(name for name in names if grant.shows(name))
    asked = as_asked(subscription)
    columns = subscription.select if grant.columns is None else visible
    narrowed = None if columns == asked.select else Narrowed(Grant(), {"select": asked.select})
    return replace(asked, select=columns, narrowed=narrowed)


def _shown(stream: Stream) -> Stream:
    options = {key: value for key, value in stream.source.options.items() if key in _SHOWN_OPTIONS}
    if "url" in options:
        options["url"] = ""  # that it is another server is enough
    settings = {key: value for key, value in stream.options.items() if key in _SHOWN_SETTINGS}
    source = Source(stream.source.format, options)
    return replace(stream, source=source, rate_rows_per_s=None, admission=Admission(), options=settings)


def ledger_for(data: bytes, stream: str, ids: Mapping[str, int]) -> bytes:
    """The root's side of the ledger as a reader needs it: where its own subscriptions begin."""
    found = Matched.decode(data, stream=stream)
    mine = set(ids.values())
    starts = {number: start for number, start in found.starts.items() if number in mine}
    return Matched(stream, found.lineage, starts=starts).encode()


def runs_for(data: bytes, seen: set[str]) -> bytes:
    """The starts of the service, with the heads of some streams."""
    runs = decode_runs(data)
    return encode_runs(
        [replace(run, heads={name: run.heads[name] for name in run.heads if name in seen}) for run in runs]
    )


def manifest_for(data: bytes) -> bytes:
    """A manifest that says how far the stream is, and not what others matched or where rows come from."""
    none = np.zeros(0, np.uint64)
    found: Manifest = decode_manifest(data)
    return encode_manifest(replace(found, class_ids=none, class_counts=none, dead_parts=(), ranges=(), withheld={}))

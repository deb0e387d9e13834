"""Applying a deployment file: a three-way merge of the file as it was last applied, the file now, and what runs.

What the file says as before is left as it runs, so that a restart undoes nothing that was changed live; what the file
says differently is done; what it no longer says is ended. Subscriptions that were added live are not the file's.
"""

from __future__ import annotations

import json
from dataclasses import replace

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.change import CatalogView, Change, body_of, class_of, replace_subscription, world
from headgate.catalog.checks import check_plan
from headgate.catalog.checksum import checksum, verify
from headgate.catalog.sharing import SharedInboxes
from headgate.model import Deployment, Plan, Subscription
from headgate.wire import codec
from headgate.wire.snapshot import encode_settings

_DECLARED = (versions.STREAM, versions.SITE, versions.LINKS, versions.SETTINGS)
Bodies = dict[tuple[str, str], str]
"""Stored texts by kind and name."""


def apply_deployment(change: Change, deployment: Deployment) -> None:
    """Make the catalog agree with the file; refused as a whole when a live subscription would lose what it needs."""
    connection = change.connection
    now = _bodies(deployment)
    before = read_filed(connection)
    differing = [key for key, body in now.items() if before.get(key) != body]
    gone = [key for key in before if key not in now]
    if not differing and not gone:
        return
    for kind, name in [*differing, *gone]:
        if kind != versions.SUBSCRIPTION:
            change.made |= versions.put(connection, kind, name, now.get((kind, name)), change.revision)
    around = world(connection)
    for kind, name in gone:
        if kind == versions.SUBSCRIPTION:
            _end(change, name)
    for kind, name in differing:
        if kind == versions.SUBSCRIPTION:
            _file(change, deployment.subscriptions[name], around)
    filed = {name for kind, name in differing if kind == versions.SUBSCRIPTION}
    if any(kind in (versions.STREAM, versions.SITE) for kind, _ in [*differing, *gone]):
        _recheck(change, around, filed)
        _drop_stale_trees(change, around)
    write_filed(connection, now)


def declare(change: Change, deployment: Deployment) -> None:
    """Put streams, sites, links and settings in force as they are here, whatever the file says.

    Refused as a whole when a subscription would lose what it needs. What the file says stays what it was compared with,
    so that applying the same file again undoes nothing of this.
    """
    now = {key: body for key, body in _bodies(deployment).items() if key[0] in _DECLARED}
    before = {key: body for key, body in versions.bodies(change.connection).items() if key[0] in _DECLARED}
    differing = sorted(key for key in now.keys() | before.keys() if now.get(key) != before.get(key))
    for kind, name in differing:
        change.made |= versions.put(change.connection, kind, name, now.get((kind, name)), change.revision)
    if any(kind in (versions.STREAM, versions.SITE) for kind, _ in differing):
        around = world(change.connection)
        _recheck(change, around, set())
        _drop_stale_trees(change, around)


def write_filed(connection: sa.Connection, now: Bodies) -> None:
    """Keep what the file says, to compare the next one with."""
    connection.execute(sa.delete(tables.filed))
    rows = [{"kind": key[0], "name": key[1], "body": body, "crc": checksum(*key, body)} for key, body in now.items()]
    if rows:
        connection.execute(sa.insert(tables.filed), rows)


def _bodies(deployment: Deployment) -> Bodies:
    found: Bodies = {
        (versions.LINKS, ""): codec.dumps(codec.encode_links(deployment.links)),
        (versions.SETTINGS, ""): codec.dumps(encode_settings(deployment)),
    }
    for site in deployment.sites.values():
        found[versions.SITE, site.name] = codec.dumps(codec.encode_site(site))
    for stream in deployment.streams.values():
        found[versions.STREAM, stream.name] = codec.dumps(codec.encode_stream(stream))
    for name, tree in (deployment.plan.trees if deployment.plan else {}).items():
        found[versions.TREE, name] = codec.dumps(codec.encode_tree(tree))
    for subscription in deployment.subscriptions.values():
        found[versions.SUBSCRIPTION, subscription.name] = body_of(subscription)
    return found


def read_filed(connection: sa.Connection) -> Bodies:
    """What the file said when it was last applied."""
    found = {}
    for row in connection.execute(sa.select(tables.filed)):
        verify(row.crc, tables.filed.name, f"{row.kind} {row.name!r}", row.kind, row.name, row.body)
        found[row.kind, row.name] = row.body
    return found


def _end(change: Change, name: str) -> None:
    found = versions.life(change.connection, name)
    if found is not None and found.origin == "file":
        versions.end_life(change.connection, found, change.revision)
        change.made = True


def _file(change: Change, subscription: Subscription, around: CatalogView) -> None:
    if versions.life(change.connection, subscription.name) is not None:
        replace_subscription(change, subscription, around, "file")
        return
    found = class_of(change.connection, subscription, around)
    shared = SharedInboxes(change.connection, [found]).find(subscription, found)
    body = body_of(replace(subscription, shared=shared))
    versions.begin_life(change.connection, subscription.name, "file", found, body, change.revision)
    change.made = True


def _recheck(change: Change, around: CatalogView, filed: set[str]) -> None:
    """The other subscriptions must still hold against the new streams and sites; a new schema may change a class."""
    for life in [life for life in versions.lives(change.connection) if life.name not in filed]:
        subscription = codec.decode_subscription(life.name, json.loads(life.body))
        found = class_of(change.connection, subscription, around)
        change.made |= versions.change_life(change.connection, life, life.origin, found, life.body, change.revision)


def _drop_stale_trees(change: Change, around: CatalogView) -> None:
    """End the trees that no longer fit the streams and sites; the planner makes new ones."""
    for (kind, name), body in versions.bodies(change.connection).items():
        if kind == versions.TREE:
            tree = codec.decode_tree(name, json.loads(body))
            if any(check_plan(Plan({name: tree}), around.roots, around.sites)):
                change.made |= versions.put(change.connection, kind, name, None, change.revision)

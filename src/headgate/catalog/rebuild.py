"""Rebuilding a lost catalog from what is published in NATS: the newest revision, and the file as it was applied.

What is in force afterwards is exactly what was: revision, plan, subscriptions, their ids and their classes. What is not
restored is the past: revisions before the newest one can be read in the tables log only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.apply import Bodies, write_filed
from headgate.catalog.change import body_of
from headgate.catalog.classes import definition
from headgate.catalog.database import open_database, parse_url, reported, writing
from headgate.catalog.identity import put_incarnation, write_runs
from headgate.wire import codec
from headgate.wire.identity import Run
from headgate.wire.record import read_record, write_record
from headgate.wire.snapshot import Snapshot, encode_settings


def encode_filed(filed: Bodies) -> bytes:
    """The file as it was applied, in the form in which it is published."""
    return write_record("filed", [(kind, name, body) for (kind, name), body in sorted(filed.items())])


def decode_filed(data: bytes) -> Bodies:
    """The inverse of `encode_filed`."""
    return {(kind, name): body for kind, name, body in read_record("filed", list[tuple[str, str, str]], data)}


def set_aside(address: str) -> Path | None:
    """Move the file of an SQLite catalog away, with what belongs to it; returns where it is now.

    None where there was no file, and for a database on a server, which `rebuild_catalog` empties instead.
    """
    url = parse_url(address)
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    file = Path(str(url.database)).expanduser()
    aside = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 1_000_000:06d}")
    for ending in ("-wal", "-shm", ""):
        part = file.with_name(file.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    return aside if aside.exists() else None


def rebuild_catalog(address: str, snapshot: Snapshot, filed: Bodies, runs: Sequence[Run]) -> Path | None:
    """Make a catalog in which a snapshot is in force; returns where the catalog before it was moved to, if it was."""
    aside = set_aside(address)
    engine = open_database(address)
    try:
        with reported(engine.url), writing(engine) as connection:
            for table in reversed(tables.metadata.sorted_tables):
                if table is not tables.head:
                    connection.execute(sa.delete(table))
            _write(connection, snapshot, filed)
            write_filed(connection, filed)
            write_runs(connection, list(runs))
    finally:
        engine.dispose()
    return aside


def _write(connection: sa.Connection, snapshot: Snapshot, filed: Bodies) -> None:
    revision, deployment, identity = snapshot.revision, snapshot.deployment, snapshot.identity
    connection.execute(sa.update(tables.head).values(revision=revision, deployment=identity.deployment))
    bodies = {(versions.LINKS, ""): codec.encode_links(deployment.links)}
    bodies[versions.SETTINGS, ""] = encode_settings(deployment)
    bodies |= {(versions.SITE, name): codec.encode_site(each) for name, each in deployment.sites.items()}
    bodies |= {(versions.STREAM, name): codec.encode_stream(each) for name, each in deployment.streams.items()}
    trees = {} if snapshot.plan is None else snapshot.plan.trees
    bodies |= {(versions.TREE, name): codec.encode_tree(each) for name, each in trees.items()}
    for (kind, name), document in bodies.items():
        versions.put(connection, kind, name, codec.dumps(document), revision)
    for stream, place in snapshot.contexts.items():
        versions.put(connection, versions.CONTEXT, stream, str(place), revision)
    for stream, incarnation in identity.incarnations.items():
        put_incarnation(connection, stream, incarnation, revision)
    _write_ids(connection, snapshot)
    for name, subscription in deployment.subscriptions.items():
        origin = "file" if (versions.SUBSCRIPTION, name) in filed else "live"
        ids = snapshot.class_ids[name], body_of(subscription), revision, snapshot.subscription_ids[name]
        versions.begin_life(connection, name, origin, *ids)
    versions.record(connection, revision, "rebuilt from NATS", identity.mark)


def _write_ids(connection: sa.Connection, snapshot: Snapshot) -> None:
    """Write the classes in force under their ids, and see to it that no id that was ever given is given again."""
    streams, identity = snapshot.deployment.streams, snapshot.identity
    texts: dict[int, str] = {}
    for name, subscription in snapshot.deployment.subscriptions.items():
        texts[snapshot.class_ids[name]] = definition(subscription, streams[subscription.stream])
    texts.setdefault(identity.last_class, "(given before the catalog was rebuilt)")
    rows = [
        {"id": number, "digest": hashlib.sha256(text.encode()).hexdigest(), "definition": text}
        for number, text in texts.items()
        if number
    ]
    if rows:
        connection.execute(sa.insert(tables.delivery_class), rows)
    if identity.last_subscription not in {0, *snapshot.subscription_ids.values()}:
        ended = {"id": identity.last_subscription, "name": "(ended)", "origin": "live", "since": 0, "until": 0}
        connection.execute(sa.insert(tables.subscription).values(ended))
    if connection.dialect.name == "postgresql":  # SQLite goes on from the largest id by itself
        for table, last in (("subscription", identity.last_subscription), ("delivery_class", identity.last_class)):
            if last:
                connection.execute(sa.text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {int(last)})"))

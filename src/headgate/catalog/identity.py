"""Who the catalog is: its deployment, the incarnations of its streams, and how far it has seen the logs get."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

import sqlalchemy as sa

from headgate.catalog import tables, versions
from headgate.catalog.database import REPAIR, CatalogError
from headgate.wire import codec
from headgate.wire.identity import Identity, Incarnation, Run, joined_runs, new_id

KEPT_RUNS: Final = 1000
"""How many starts of the service are remembered."""


def read_identity(connection: sa.Connection, revision: int, incarnations: Mapping[str, Incarnation]) -> Identity:
    """The identity that a snapshot of a revision carries; one that is still being made has no mark yet."""
    head = connection.execute(sa.select(tables.head)).one()
    deployment = str(head.deployment)
    if not revision or revision > head.revision:
        return Identity(deployment, incarnations=incarnations)
    row = connection.execute(sa.select(tables.revision).where(tables.revision.c.revision == revision)).first()
    if row is None:
        raise CatalogError(
            f"the catalog is damaged: its table 'revision' has no row of revision {revision}",
            hint=REPAIR,
        )
    return Identity(deployment, row.mark, row.last_subscription, row.last_class, incarnations)


def read_mark(connection: sa.Connection, revision: int) -> str | None:
    """The mark of a revision, None when it is not kept."""
    table = tables.revision
    found = connection.execute(sa.select(table.c.mark).where(table.c.revision == revision)).scalar()
    return None if found is None else str(found)


def put_incarnation(connection: sa.Connection, stream: str, incarnation: Incarnation, revision: int) -> bool:
    """Put a stream's incarnation in force; False when it already was."""
    return versions.put(connection, versions.INCARNATION, stream, codec.dumps(asdict(incarnation)), revision)


def read_witness(connection: sa.Connection) -> dict[str, int]:
    """The last sequence number that was seen in each log."""
    return {row.log: row.sequence for row in connection.execute(sa.select(tables.witness))}


def write_witness(connection: sa.Connection, seen: Mapping[str, int]) -> None:
    """Replace what is known of all logs."""
    known = read_witness(connection)
    if known == dict(seen):
        return
    table = tables.witness
    for log in known.keys() - seen.keys():
        connection.execute(sa.delete(table).where(table.c.log == log))
    for log, sequence in seen.items():
        if log not in known:
            connection.execute(sa.insert(table).values(log=log, sequence=sequence))
        elif known[log] != sequence:
            connection.execute(sa.update(table).where(table.c.log == log).values(sequence=sequence))


def read_runs(connection: sa.Connection) -> list[Run]:
    """The starts that are remembered, oldest first."""
    table = tables.run
    rows = connection.execute(sa.select(table.c.id, table.c.heads).order_by(table.c.number))
    return [Run(row.id, json.loads(row.heads)) for row in rows]


def write_runs(connection: sa.Connection, runs: list[Run]) -> None:
    """Replace what is remembered."""
    connection.execute(sa.delete(tables.run))
    rows = [{"number": number, "id": run.id, "heads": json.dumps(dict(run.heads))} for number, run in enumerate(runs)]
    if rows:
        connection.execute(sa.insert(tables.run), rows)


def add_run(connection: sa.Connection, heads: Mapping[str, int], published: Sequence[Run]) -> list[Run]:
    """Remember a start; returns all that are remembered."""
    known = read_runs(connection)
    runs = [*(joined_runs(known, published) or known), Run(new_id(), dict(heads))][-KEPT_RUNS:]
    write_runs(connection, runs)
    return runs

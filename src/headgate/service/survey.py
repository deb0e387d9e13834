"""Collecting what a start compares: the catalog, the logs in NATS and the checkpoint directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from headgate.catalog import Catalog
from headgate.catalog.database import shown
from headgate.catalog.rebuild import decode_filed, rebuild_catalog
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError, LogState
from headgate.fabric.place import write_whole
from headgate.protocol.published import load_snapshot
from headgate.relay.root import committed_head
from headgate.service.identity import Checkpoint, IdentitySurvey
from headgate.service.mending import unreadable_subjects
from headgate.wire.frame import WireError
from headgate.wire.identity import Run, decode_runs, joined_runs
from headgate.wire.record import read_record, write_record
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import Snapshot, SnapshotError
from headgate.wire.unreadable import UnreadableError

_FILE: Final = "identity.json"
_KIND: Final = "checkpoint-identity"
_ASK_S: Final = 1.0
COUNTED: Final = "/messages"
"""What follows the name of a log where the catalog keeps how many messages it had at the last stop."""


def short_logs(infos: Mapping[str, LogState], witness: Mapping[str, int]) -> dict[str, int]:
    """By log how many messages are missing since the last stop, of those that nothing was written to since then."""
    missing = {
        name: witness[name + COUNTED] - info.messages
        for name, info in infos.items()
        if name + COUNTED in witness and info.last == witness.get(name)
    }
    return {name: count for name, count in missing.items() if count > 0}


async def survey(fabric: Fabric, catalog: Catalog, place: str, checkpoints: Path) -> IdentitySurvey:
    """Everything that has to fit together, as it is now."""
    logs = fabric.logs
    await asyncio.to_thread(catalog.verify)
    snapshot = catalog.snapshot()
    infos = await own_logs(fabric)
    published, mark, unreadable = 0, "", ""
    if logs.tables.name in infos:
        published, mark, unreadable = await _newest_published(fabric, snapshot.revision)
    streams = snapshot.identity.incarnations
    damaged = await unreadable_subjects(fabric, infos, streams)
    heads = await committed_heads(fabric, [stream for stream in streams if logs.root(stream).name in infos])
    return IdentitySurvey(
        logs=logs,
        place=shown(place),
        revision=snapshot.revision,
        identity=snapshot.identity,
        witness={name: seen for name, seen in catalog.witness().items() if not name.endswith(COUNTED)},
        short=short_logs(infos, catalog.witness()),
        infos=infos,
        published=published,
        published_mark=mark,
        known_mark=catalog.mark(published),
        unreadable=unreadable,
        apart=joined_runs(catalog.runs(), await published_runs(fabric, infos)) is None,
        damaged=damaged,
        committed=frozenset(stream for stream, head in heads.items() if head is not None),
        checkpoints=read_checkpoints(checkpoints),
    )


async def own_logs(fabric: Fabric) -> dict[str, LogState]:
    """The logs of this namespace that are in NATS."""
    prefix = f"{fabric.logs.namespace.upper()}_"
    found = await fabric.infos(fabric.logs.everything)
    return {name: info for name, info in found.items() if name.startswith(prefix)}


async def _newest_published(fabric: Fabric, known: int) -> tuple[int, str, str]:
    """The newest revision in the tables log with its mark, and why it cannot be read where that is so.

    What cannot be read and was neither announced nor made by the catalog is nobody's revision, and passed over.
    """
    head = await fabric.last(fabric.logs.state, fabric.logs.head) if await fabric.info(fabric.logs.state) else None
    said = None if head is None else fabric.quarantine.take(fabric.logs.state, head, read_number)
    for revision in await revisions(fabric):
        try:
            return revision, (await published_snapshot(fabric, revision)).identity.mark, ""
        except SnapshotError as error:
            if revision <= max(known, said or 0):
                return revision, "", str(error)
            SERVICE.warning("something that is no revision of the catalog was passed over: %s", error)
    return 0, "", ""


async def revisions(fabric: Fabric) -> list[int]:
    """The revisions in the tables log, announced or not, the newest first."""
    logs = fabric.logs
    subjects = await fabric.subjects(logs.tables, logs.any_table)
    names = {subject.rsplit(".", 1)[1].partition("-")[0] for subject in subjects}
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


async def published_snapshot(fabric: Fabric, revision: int) -> Snapshot:
    """A revision as it is in the tables log, announced or not."""
    where = f"{fabric.logs.tables.name}, {fabric.logs.table(revision)}"
    try:
        found = await load_snapshot(fabric, revision)
    except UnreadableError as error:
        where = f"{where}, message {error.sequence}"
        raise SnapshotError(f"this is not a revision of the catalog: {error.cause}", where=where) from error
    if found is None:
        raise SnapshotError("it is listed and cannot be read", where=where)
    return found


async def published_runs(fabric: Fabric, infos: Mapping[str, LogState]) -> list[Run]:
    """The starts of the service as NATS knows them; none where that cannot be read."""
    logs = fabric.logs
    if logs.state.name not in infos:
        return []
    stored = await fabric.last(logs.state, logs.runs)
    with noted(SERVICE, "the starts before cannot be read", HeadgateError):
        return [] if stored is None else decode_runs(stored.data)
    return []


async def committed_heads(fabric: Fabric, streams: Iterable[str]) -> dict[str, int | None]:
    """By stream, the last sequence number that was committed, None when nothing was."""
    return {stream: await committed_head(fabric, stream) for stream in streams}


def read_checkpoints(directory: Path) -> dict[str, Checkpoint]:
    """By stream, what its checkpoint directory says about itself."""
    found = {}
    for place in sorted(directory.iterdir()) if directory.is_dir() else ():
        if place.is_dir() and not place.name.startswith("."):
            found[place.name] = Checkpoint()
            with noted(SERVICE, "whose a checkpoint is cannot be read", OSError, WireError):
                found[place.name] = read_checkpoint(place / _FILE)
    return found


def read_checkpoint(path: Path) -> Checkpoint:
    """What the file of a checkpoint directory says; `WireError` where it is damaged."""
    return read_record(_KIND, Checkpoint, path.read_bytes())


def mark_checkpoints(directory: Path, deployment: str, incarnations: Mapping[str, str]) -> None:
    """Make the checkpoint directories that are missing, each with the identity of its stream."""
    for stream, incarnation in incarnations.items():
        place = directory / stream
        if not (place / _FILE).exists():
            place.mkdir(parents=True, exist_ok=True)
            write_whole(place / _FILE, write_record(_KIND, Checkpoint(deployment, incarnation)))


def set_checkpoint_aside(directory: Path, stream: str) -> Path | None:
    """Move a stream's checkpoint out of the way, so that its source is read from the start; nothing is deleted."""
    place = directory / stream
    if not place.exists():
        return None
    number = 1
    while (aside := directory / ".aside" / f"{stream}.{number}").exists():
        number += 1
    aside.parent.mkdir(exist_ok=True)
    return place.rename(aside)


async def refuse_second_service(fabric: Fabric) -> None:
    """Refuse to start beside a service that runs already: both would write the same logs."""
    with noted(SERVICE, "no other service answers", FabricError):
        await fabric.request(fabric.logs.control("context"), b"{}", _ASK_S)
        raise HeadgateError(
            f"a deployment is already running in this NATS under the namespace {fabric.logs.namespace!r}",
            hint="stop it, or give another --namespace",
        )


async def rebuild_from_nats(fabric: Fabric, place: str) -> tuple[Snapshot, Path | None]:
    """Rebuild the catalog from what is published; returns what is in force, and where the old catalog was moved to."""
    logs = fabric.logs
    known = await revisions(fabric) if logs.tables.name in await own_logs(fabric) else []
    revision = known[0] if known else 0
    if not revision:
        raise HeadgateError(
            f"NATS holds no revision of a catalog under the namespace {logs.namespace!r}",
            hint="is --nats right, is --namespace right?",
        )
    snapshot = await published_snapshot(fabric, revision)
    if _is_current(place, snapshot):
        raise HeadgateError(
            f"the catalog at {shown(place)} is not behind revision {revision}, which is in NATS: it was left as it is",
            hint="start without --rebuild-catalog",
        )
    filed = await fabric.last(logs.state, logs.filed)
    runs = await fabric.last(logs.state, logs.runs)
    aside = rebuild_catalog(
        place,
        snapshot,
        {} if filed is None else decode_filed(filed.data),
        [] if runs is None else decode_runs(runs.data),
    )
    return snapshot, aside


def _is_current(place: str, published: Snapshot) -> bool:
    """Whether a catalog can be read and has everything that was published."""
    with noted(SERVICE, "the catalog that is replaced cannot be read", HeadgateError), Catalog.open(place) as catalog:
        catalog.verify()
        mine = catalog.snapshot()
        kept = catalog.mark(published.revision) in (None, published.identity.mark)
        return (
            kept and mine.revision >= published.revision and mine.identity.deployment == published.identity.deployment
        )
    return False

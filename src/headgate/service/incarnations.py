"""Beginning incarnations: of streams that are new, and anew of streams whose rows were lost and the loss was accepted.

The root log comes first and the catalog second, so that an interrupted start leaves at most a log that the next start
takes over. An accepted loss goes the other way: it is declared in the catalog first, so that an interrupted one is met
again by the next start as what it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from headgate.catalog import Catalog
from headgate.fabric import Fabric
from headgate.protocol.outlets import inbox_numbers
from headgate.protocol.reports import RelayReport
from headgate.relay.core import Key
from headgate.service.identity import IdentitySurvey, Misfit
from headgate.service.mending import rewrite
from headgate.service.survey import own_logs, set_checkpoint_aside
from headgate.wire.identity import INCARNATION_KEY, Incarnation, new_id
from headgate.wire.snapshot import Snapshot


async def new_incarnations(fabric: Fabric, known: Iterable[str], streams: Iterable[str]) -> dict[str, Incarnation]:
    """Make the root logs of streams that have no incarnation yet; returns the incarnations that have to be recorded."""
    logs, found = fabric.logs, {}
    for stream in sorted(set(streams) - set(known)):
        incarnation = Incarnation(new_id(), time_ms=int(time.time() * 1000))
        await fabric.ensure(logs.root(stream), {INCARNATION_KEY: incarnation.id})
        info = (await own_logs(fabric))[logs.root(stream).name]
        made = info.marks[INCARNATION_KEY]  # another one where an interrupted start made the log
        found[stream] = Incarnation(made, time_ms=incarnation.time_ms)
    return found


async def accept_loss(
    fabric: Fabric, catalog: Catalog, found: IdentitySurvey, misfits: Sequence[Misfit], checkpoints: Path
) -> list[str]:
    """Declare what is lost and begin the streams concerned anew; returns what was done, in sentences."""
    everything = frozenset(found.identity.incarnations)
    lost = [misfit for misfit in misfits if misfit.loses_rows]
    anew = frozenset[str]().union(*(everything if each.streams is None else each.streams for each in lost))
    told = []
    values = [subject for misfit in misfits for subject in misfit.values]
    if values:
        await rewrite(fabric, catalog, fabric.logs.state)
        told += [f"{fabric.logs.state.name}, {each}: the value could not be read and was given up" for each in values]
    if lost:
        reason = "; ".join(each.text for each in lost)
        now_ms, before = int(time.time() * 1000), found.identity.last_subscription
        next_ones = {name: found.identity.incarnations[name].next(reason, now_ms, before) for name in sorted(anew)}
        catalog.set_witness({})
        catalog.begin_incarnations(next_ones)
        if anew == everything:
            await _delete_logs(fabric, found)
        else:
            await _clear_streams(fabric, catalog.snapshot(), anew)
        told += [f"stream {name} begins {each.title}: {reason}" for name, each in next_ones.items()]
    aside = anew.union(*(each.streams or everything for each in misfits if each.checkpoint_only))
    for stream in sorted(aside):
        if (moved := set_checkpoint_aside(checkpoints, stream)) is not None:
            told.append(f"the checkpoint of stream {stream} was moved to {moved}; its source is read from the start")
    for stream in sorted(anew):
        marks = {INCARNATION_KEY: next_ones[stream].id}
        await fabric.ensure(fabric.logs.root(stream), marks)
    return told


async def _delete_logs(fabric: Fabric, found: IdentitySurvey) -> None:
    """Delete all logs but those of published rows: what waits there is read by the new incarnation."""
    inputs = {fabric.logs.input(stream).name for stream in found.identity.incarnations}
    for name, info in found.infos.items():
        if name not in inputs or info.lost:
            await fabric.discard(name)


async def _clear_streams(fabric: Fabric, snapshot: Snapshot, streams: frozenset[str]) -> None:
    """Delete what the logs hold of some streams, and leave the others alone."""
    logs = fabric.logs
    ids = inbox_numbers(snapshot, streams)
    for stream in streams:
        await fabric.discard(logs.root(stream).name)
        for subject in (logs.pin(stream), logs.ledger(stream), logs.past(stream), logs.mark_anywhere(stream)):
            await fabric.clear(logs.state, subject)
    for identity in ids:
        await fabric.clear(logs.state, logs.ack(int(identity)))
    await fabric.clear(logs.state, logs.oldest)
    for site in snapshot.deployment.sites:
        for stream in streams:
            await fabric.clear(logs.site(site), logs.links_of(site, stream))
        for subject in await fabric.subjects(logs.site(site), logs.held_at(site)):
            if Key.parse(subject.rsplit(".", 1)[1]).stream in streams:
                await fabric.clear(logs.site(site), subject)
        for subject in await fabric.subjects(logs.inbox(site), logs.inboxes_at(site)):
            if subject.rsplit(".", 1)[1].partition("-")[0] in ids:
                await fabric.clear(logs.inbox(site), subject)
        await _unsettle(fabric, site, streams)


async def _unsettle(fabric: Fabric, site: str, streams: frozenset[str]) -> None:
    """Take back what a relay has stated of some streams: the same numbers will mean other rows."""
    logs = fabric.logs
    stored = await fabric.last(logs.state, logs.stats("relay", site))
    report = fabric.quarantine.take(logs.state, stored, RelayReport.decode) if stored else None
    if report is not None:
        rest = {stream: settled for stream, settled in report.settled.items() if stream not in streams}
        await fabric.publish(logs.stats("relay", site), msgspec.structs.replace(report, settled=rest).encode())

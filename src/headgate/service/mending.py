"""Mending damaged logs before a start: what the server lists and cannot read is found, dropped, and made again.

A server that has lost a message to a damaged file goes on listing it, and refuses another one in its place. So a log
with such a message is written anew from what can be read of it. Nothing runs then, and nothing refers to a place
in the two logs that are treated so: values of which the latest counts, and revisions of the catalog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from headgate.catalog import Catalog
from headgate.fabric import LASTS, Fabric, LogState
from headgate.relay.tables import publish_snapshot
from headgate.wire.logs import Log


async def unreadable_subjects(
    fabric: Fabric, infos: Mapping[str, LogState], streams: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """By log, the subjects that the server lists and whose last message it cannot read.

    Of a root log only the manifests and the updates of contexts are looked at: the rows of a part that cannot be read
    are declared as expired. Of outboxes all messages are.
    """
    logs, found = fabric.logs, {}
    wanted = {logs.state.name: (logs.state, logs.everything), logs.tables.name: (logs.tables, logs.any_table)}
    wanted |= {logs.root(stream).name: (logs.root(stream), logs.everything) for stream in streams}
    for name, (log, pattern) in wanted.items():
        if name not in infos:
            continue
        subjects = [each for each in sorted(await fabric.subjects(log, pattern)) if not each.endswith(".part")]
        missing = []
        for start in range(0, len(subjects), LASTS):
            page = subjects[start : start + LASTS]
            missing += sorted(set(page) - (await fabric.lasts(log, page)).keys())
        if missing:
            found[name] = tuple(missing)
    for name in infos:
        if name.startswith(logs.outbox("x").name[:-1]) and (missing := await _unread(fabric, name)):
            found[name] = tuple(missing)
    return found


async def _unread(fabric: Fabric, name: str) -> list[str]:
    """The subjects of a log of which fewer messages can be read than the server lists.

    A relay passes on what it reads of an outbox, and nothing would say that there was more.
    """
    log, place, read = Log(name, (), 0), 0, Counter[str]()
    while batch := await fabric.read(log, fabric.logs.everything, place):
        read.update(stored.subject for stored in batch)
        place = batch[-1].sequence
    listed = await fabric.subjects(log, fabric.logs.everything)
    return sorted(subject for subject, count in listed.items() if count > read[subject])


async def mend(fabric: Fabric, catalog: Catalog, damaged: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Make again what is damaged and can be: values that every start publishes, and revisions that the catalog keeps.

    A log of which anything else is damaged is left as it is. Returns what was done, in sentences.
    """
    logs, told = fabric.logs, []
    values = damaged.get(logs.state.name, ())
    if values and all(each in (logs.head, logs.runs, logs.filed) or each.startswith(logs.any_stats) for each in values):
        await rewrite(fabric, catalog, logs.state)
        told += [f"{logs.state.name}, {each}: the value could not be read and is published again" for each in values]
    revisions = sorted({_revision(subject) for subject in damaged.get(logs.tables.name, ())})
    if revisions and all(catalog.mark(revision) is not None for revision in revisions):
        await rewrite(fabric, catalog, logs.tables, frozenset(revisions))
        for revision in revisions:
            await publish_snapshot(fabric, catalog.snapshot(revision))
            told.append(f"{logs.tables.name}, {logs.table(revision)}: it could not be read and was published again")
    return told


async def rewrite(fabric: Fabric, catalog: Catalog, log: Log, without: frozenset[int] = frozenset()) -> None:
    """Write a log anew from what can be read of it, of the tables log without some revisions."""
    kept, place = [], 0
    while batch := await fabric.read(log, fabric.logs.everything, place):
        kept += [stored for stored in batch if not without or _revision(stored.subject) not in without]
        place = batch[-1].sequence
    catalog.set_witness({name: seen for name, seen in catalog.witness().items() if name.partition("/")[0] != log.name})
    await fabric.discard(log)
    await fabric.ensure(log)
    for stored in kept:
        await fabric.publish(stored.subject, stored.data)


def _revision(subject: str) -> int:
    """The revision that a subject of the tables log is of, -1 for what somebody else has put there."""
    name = subject.rsplit(".", 1)[1].partition("-")[0]
    return int(name) if name.isdigit() else -1

"""The driver's side of a micro-batch: pin what it runs under before it, commit one manifest after it.

A batch is committed once, whatever is replayed: the last manifest is read first, a batch that reads the same ranges of
its sources under the same number is dropped, one that does not begin where the last manifest ends is refused, and the
append is fenced by the manifest that was read, so that an older driver that still runs cannot get between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np

from headgate import faults
from headgate.errors import HeadgateError
from headgate.fabric import FencedError, SyncFabric
from headgate.matching.admission import UpdatePlan
from headgate.matching.skipped import Skipped
from headgate.pipeline.checkpoint import LineageError
from headgate.pipeline.counts import read_counts
from headgate.pipeline.record import follows, same_ranges
from headgate.protocol.published import head_revision
from headgate.protocol.records import Purging
from headgate.reduction import merged
from headgate.wire.ledger import check_counts
from headgate.wire.manifest import Manifest, PartRef, SourceRange, decode_manifest, encode_manifest
from headgate.wire.sealed import read_object, write_object
from headgate.wire.unreadable import decode_message
from headgate.wire.unsent import Unsent, decode_unsent


@dataclass(frozen=True, slots=True)
class Pin:
    """What a micro-batch is matched with (contract 8): a version of the catalog, and a place in the context log.

    `before` is the place of the batch before it: the updates in (before, context] arrived between the two. Under
    overload the pin may lag behind `head`, the last update there was, and names what was shed since the version began:
    updates at the places `skipped`, and of those in `partly` the changes whose bits are set, as hexadecimal text. This
    batch has shed `shed_updates` values.
    """

    version: int
    context: int = 0
    before: int = 0
    head: int = 0
    skipped: tuple[int, ...] = ()
    shed_updates: int = 0
    partly: tuple[tuple[int, str], ...] = ()

    @property
    def left_out(self) -> Skipped:
        """The updates that are not applied."""
        return Skipped(frozenset(self.skipped), {place: bytes.fromhex(bits) for place, bits in self.partly})

    def without(self, left_out: Skipped, shed_updates: int = 0) -> Pin:
        """The pin with those updates left out."""
        partly = tuple((place, left_out.partly[place].hex()) for place in sorted(left_out.partly))
        return replace(self, skipped=tuple(sorted(left_out.whole)), partly=partly, shed_updates=shed_updates)

    def to_json(self, batch: int) -> bytes:
        """The stored form."""
        return write_object({"batch": batch, **asdict(self)})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Pin:
        """Read the stored form, without its batch."""
        known = {"head": document.get("context", 0), **document}
        known["skipped"] = tuple(known.get("skipped", ()))
        known["partly"] = tuple((place, bits) for place, bits in known.get("partly", ()))
        return cls(**known)


def decode_pin(data: bytes) -> tuple[int, Pin]:
    """Read a stored pin and the batch that it is for."""
    document = read_object(data)
    batch, pin = int(document.pop("batch")), Pin.of(document)
    check_counts(asdict(pin), "version", "context", "before", "head", "shed_updates")
    assert all(place >= 0 for place in (*pin.skipped, *pin.left_out.partly)), "places count from 0"
    return batch, pin


def newest_revision(fabric: SyncFabric) -> int:
    """The newest version of the catalog."""
    found = fabric.run(head_revision(fabric.fabric))
    if found is None:
        raise HeadgateError("no version of the catalog is published", hint="is the service running?")
    return found


# By batch and version: what happens to updates that wait, from the place after which they do up to the head.
UpdateControl = Callable[[SyncFabric, int, int, int, int], UpdatePlan]


def pin_batch(fabric: SyncFabric, stream: str, batch: int, control: UpdateControl | None = None) -> Pin:
    """The pin of a micro-batch: chosen by the first who asks, the same for every replay.

    A new version of the catalog takes all updates, so that what a pin leaves out lies after its version's own contexts.
    A version that is about to be deleted, as this driver took so long to pin it, is left for the newest one. A pin that
    cannot be read counts for none.
    """
    logs = fabric.logs
    while True:
        stored = fabric.last(logs.state, logs.pin(stream))
        readable = fabric.quarantine.take(logs.state, stored, decode_pin, "pinned anew") if stored else None
        number, known = readable or (-1, None)
        before = 0 if known is None else known.context
        if known is not None and number == batch:
            if _kept(fabric, known.version):
                return known
            before = known.before
        update = fabric.last(logs.root(stream), logs.context(stream))
        version, place = newest_revision(fabric), update.sequence if update else 0
        pin = Pin(version, place, before, place)
        if known is not None and known.version == version:
            left_out = known.left_out
            plan = UpdatePlan(place)
            if control is not None and before < place:
                plan = control(fabric, batch, version, before, place)
            pin = replace(pin, context=plan.upto).without(left_out.joined(plan.shed), plan.shed_changes)
        try:
            fabric.publish(logs.pin(stream), pin.to_json(batch), expect=stored.sequence if stored else 0)
        except FencedError:
            continue
        if _kept(fabric, version):
            fabric.report_quarantine(f"driver-{stream}")
            return pin


def _kept(fabric: SyncFabric, version: int) -> bool:
    """Whether a version that a stored pin names stays: who deletes versions announces it and then reads the pins."""
    logs = fabric.logs
    if newest_revision(fabric) == version:
        return True
    going = fabric.last(logs.state, logs.purging)
    if going is not None:
        announced = fabric.quarantine.take(logs.state, going, Purging.decode, "another version is pinned")
        if announced is None or version in announced.versions:
            return False
    return fabric.last(logs.tables, logs.table(version)) is not None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a batch read of its sources, for its manifest.

    `files` gives the place of the list of files that goes on from the last manifest's.
    """

    ranges: tuple[SourceRange, ...] = ()
    files: Callable[[Manifest | None], int] = lambda last: last.files if last else 0


NO_SOURCE: Final = Reading()
"""Of batches that were made here and not read from a source: their number alone says which they are."""


def commit(
    fabric: SyncFabric,
    stream: str,
    lineage: str,
    batch: int,
    pin: Pin,
    staged: Sequence[Any],
    reading: Reading = NO_SOURCE,
) -> Manifest | None:
    """Append the manifest of a batch, None when the batch was committed before.

    `staged` are the rows that the match pass returned, in partition order.
    """
    logs = fabric.logs
    while True:
        stored = fabric.last(logs.root(stream), logs.commit(stream))
        last = decode_message(logs.root(stream).name, stored, decode_manifest) if stored else None
        if last is not None and _committed(stream, lineage, batch, reading, last):
            return None
        manifest = build_manifest(stream, lineage, batch, pin, staged, last.upto if last else 0)
        manifest = replace(manifest, ranges=reading.ranges, files=reading.files(last))
        if last is not None and not last.evaluated:
            manifest = replace(manifest, untold=last.told)  # nobody below the root has seen that manifest
        faults.reach("driver.before_manifest")
        try:
            fabric.publish(logs.commit(stream), encode_manifest(manifest), expect=stored.sequence if stored else 0)
        except FencedError:
            continue
        faults.reach("driver.after_manifest")
        return manifest


def _committed(stream: str, lineage: str, batch: int, reading: Reading, last: Manifest) -> bool:
    """Whether a batch is the one that was committed last; a `LineageError` where it neither is nor follows that one."""
    if last.lineage != lineage:
        raise LineageError(
            f"stream {stream!r} was committed by the checkpoint {last.lineage}, this one is {lineage}",
            hint="is another driver running? else restore the checkpoint directory",
        )
    if batch <= last.batch:
        if not reading.ranges or (batch == last.batch and same_ranges(last, reading.ranges)):
            return True
        raise LineageError(
            f"batch {batch} of stream {stream!r} reads {_shown(reading.ranges)}, but the root log already has batch "
            f"{last.batch}, which ends with {_shown(last.ranges)}: the checkpoint has moved backwards",
            hint="nothing is lost: the stream is started again with a checkpoint that is made from the root log",
        )
    if not follows(last, reading.ranges):
        raise LineageError(
            f"batch {batch} of stream {stream!r} reads {_shown(reading.ranges)}, which does not begin where the last "
            f"commit, batch {last.batch}, ends: {_shown(last.ranges)}",
            hint="nothing is lost: the stream is started again with a checkpoint that is made from the root log",
        )
    return False


def _shown(ranges: Sequence[SourceRange]) -> str:
    return ", ".join(f"{each.before or 'the start'} to {each.after}" for each in ranges) or "no stated range"


def build_manifest(stream: str, lineage: str, batch: int, pin: Pin, staged: Sequence[Any], after: int) -> Manifest:
    """The manifest of what was staged, with sequence numbers by prefix sums."""
    parts = [row for row in staged if row["kind"] == "part"]
    dead = [row for row in staged if row["kind"] == "dead"]
    class_ids, totals = read_counts(staged)
    events = sum(row["events"] for row in parts)
    now_ms = int(time.time() * 1000)
    mean_ms = sum(row["event_ms"] * row["events"] for row in parts) / events if events else float(now_ms)
    return Manifest(
        stream=stream,
        lineage=lineage,
        batch=batch,
        version=pin.version,
        context=pin.context,
        skipped=np.array(pin.skipped, np.uint64),
        partly=pin.left_out.partly,
        withheld=withheld_of(staged),
        unsent=unsent_of(staged),
        shed_updates=pin.shed_updates,
        partly_shed=sum(row["partly_shed"] for row in staged),
        after=after,
        parts=tuple(PartRef(row["log_sequence"], row["evaluated"], row["kept"]) for row in parts),
        class_ids=class_ids,
        class_counts=totals,
        dead=sum(row["dead"] for row in dead),
        shed=sum(row["shed"] for row in staged),
        dead_parts=tuple(PartRef(row["log_sequence"], 0, row["dead"]) for row in dead),
        time_ms=now_ms,
        lag_ms=int(now_ms - mean_ms),
    )


def unsent_of(staged: Sequence[Any]) -> Unsent | None:
    """What senders have given up, as declared in this batch."""
    declared = (decode_unsent(row["unsent"]) for row in staged if row["unsent"])
    return reduce(merged, declared, None)


def withheld_of(staged: Sequence[Any]) -> dict[str, int]:
    """By what groups of classes tolerate, how many rows were withheld from each."""
    found: dict[str, int] = {}
    for row in staged:
        for tolerance, count in json.loads(row["withheld"] or "{}").items():
            found[tolerance] = found.get(tolerance, 0) + count
    return found

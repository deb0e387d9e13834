"""The stream's committer: a micro-batch is pinned before it runs, and committed by one manifest after it.

A batch is committed once, whatever is replayed: the last manifest is read first, a batch that reads the same ranges of
its sources under the same number is dropped, one that does not begin where the last manifest ends is refused, and the
append is fenced by the manifest that was read, so that an older driver that still runs cannot get between.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from headgate import faults
from headgate.errors import HeadgateError
from headgate.matching.admission import UpdatePlan
from headgate.protocol.port import FencedError, LogPort
from headgate.protocol.published import head_revision
from headgate.protocol.records import Pin, Purging
from headgate.wire.manifest import Manifest, SourceRange
from headgate.wire.unreadable import decode_message

UpdateControl = Callable[[LogPort, int, int, int, int], Awaitable[UpdatePlan]]
"""By batch and version: what happens to updates that wait, from the place after which they do up to the head."""
Draft = Callable[[Manifest | None, int], Awaitable[Manifest]]
"""The manifest of a batch after the last one that was committed, at a time in milliseconds."""


class LineageError(HeadgateError):
    """The checkpoint and the root log do not fit together, and going on would lose or repeat rows."""


async def newest_revision(port: LogPort) -> int:
    """The newest version of the catalog."""
    found = await head_revision(port)
    if found is None:
        raise HeadgateError("no version of the catalog is published", hint="is the service running?")
    return found


async def pin_batch(port: LogPort, stream: str, batch: int, control: UpdateControl | None = None) -> Pin:
    """The pin of a micro-batch: chosen by the first who asks, the same for every replay.

    A new version of the catalog takes all updates, so that what a pin leaves out lies after its version's own contexts.
    It is looked up before them: one that came in between would have taken over updates that the pin lies before.
    A version that is about to be deleted, as this driver took so long to pin it, is left for the newest one. A pin that
    cannot be read counts for none.
    """
    logs = port.logs
    while True:
        stored = await port.last(logs.state, logs.pin(stream))
        known = port.quarantine.take(logs.state, stored, Pin.decode, "pinned anew") if stored else None
        before = 0 if known is None else known.context
        if known is not None and known.batch == batch:
            if await _kept(port, known.version):
                return known
            before = known.before
        version = await newest_revision(port)  # first: what it has taken over of the contexts is then stored
        update = await port.last(logs.root(stream), logs.context(stream))
        place = update.sequence if update else 0
        pin = Pin(version, place, before, place, batch=batch)
        if known is not None and known.version == version:
            plan = UpdatePlan(place)
            if control is not None and before < place:
                plan = await control(port, batch, version, before, place)
            left_out = known.left_out.joined(plan.shed)
            pin = structs.replace(pin, context=plan.upto).without(left_out, plan.shed_changes)
        try:
            await port.publish(logs.pin(stream), pin.encode(), expect=stored.sequence if stored else 0)
        except FencedError:
            continue
        if await _kept(port, version):
            return pin


async def _kept(port: LogPort, version: int) -> bool:
    """Whether a version that a stored pin names stays: who deletes versions announces it and then reads the pins."""
    logs = port.logs
    if await newest_revision(port) == version:
        return True
    going = await port.last(logs.state, logs.purging)
    if going is not None:
        announced = port.quarantine.take(logs.state, going, Purging.decode, "another version is pinned")
        if announced is None or version in announced.versions:
            return False
    return await port.last(logs.tables, logs.table(version)) is not None


@dataclass(frozen=True, slots=True)
class Batch:
    """Which micro-batch it is, and the ranges of its sources that it reads; none where it was made here."""

    stream: str
    lineage: str
    number: int
    ranges: tuple[SourceRange, ...] = ()

    def committed(self, last: Manifest) -> bool:
        """Whether it was committed last; a `LineageError` where it neither was nor follows what was."""
        if last.lineage != self.lineage:
            raise LineageError(
                f"stream {self.stream!r} was committed by the checkpoint {last.lineage}, this one is {self.lineage}",
                hint="is another driver running? else restore the checkpoint directory",
            )
        number, ranges = self.number, self.ranges
        if number <= last.batch and (not ranges or (number == last.batch and same_ranges(last, ranges))):
            return True
        reads = f"batch {number} of stream {self.stream!r} reads {_shown(ranges)}"
        hint = "nothing is lost: the stream is started again with a checkpoint that is made from the root log"
        if number <= last.batch:
            raise LineageError(
                f"{reads}, but the root log already has batch {last.batch}, which ends with {_shown(last.ranges)}: the "
                "checkpoint has moved backwards",
                hint=hint,
            )
        if not follows(last, ranges):
            raise LineageError(
                f"{reads}, which does not begin where the last commit, batch {last.batch}, ends: {_shown(last.ranges)}",
                hint=hint,
            )
        return False


async def commit(port: LogPort, batch: Batch, draft: Draft) -> Manifest | None:
    """Append the manifest of a batch, None when the batch was committed before."""
    logs = port.logs
    log, subject = logs.root(batch.stream), logs.commit(batch.stream)
    while True:
        stored = await port.last(log, subject)
        last = decode_message(log.name, stored, port.codec.manifest) if stored else None
        if last is not None and batch.committed(last):
            return None
        manifest = await draft(last, int(port.wall_s * 1000))
        if last is not None and not last.evaluated:
            manifest = replace(manifest, untold=last.told)  # nobody below the root has seen that manifest
        faults.reach("driver.before_manifest")
        try:
            await port.publish(subject, port.codec.encode_manifest(manifest), expect=stored.sequence if stored else 0)
        except FencedError:
            continue
        faults.reach("driver.after_manifest")
        return manifest


def follows(last: Manifest | None, ranges: Sequence[SourceRange]) -> bool:
    """Whether ranges begin where those of the last manifest end; true where either states none."""
    if last is None or not last.ranges or not ranges:
        return True
    return len(ranges) == len(last.ranges) and all(
        same_offset(each.before, before.after) for each, before in zip(ranges, last.ranges, strict=True)
    )


def same_ranges(last: Manifest, ranges: Sequence[SourceRange]) -> bool:
    """Whether a batch reads what the last manifest holds; true where neither states a range."""
    return same_offsets([each.after for each in ranges], [each.after for each in last.ranges])


def same_offsets(offsets: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the offsets of all sources are the same."""
    return len(offsets) == len(wanted) and all(map(same_offset, offsets, wanted))


def same_offset(one: str | None, other: str | None) -> bool:
    """Whether two offsets are the same, however their JSON is written.

    >>> same_offset('{"row": 1, "origin_us": 2}', '{"origin_us":2,"row":1}'), same_offset(None, '{"row": 1}')
    (True, False)
    """
    if one is None or other is None:
        return one is other
    return bool(_parsed(one) == _parsed(other))


def _parsed(offset: str) -> Any:
    try:
        return json.loads(offset)
    except ValueError:
        return offset


def _shown(ranges: Sequence[SourceRange]) -> str:
    return ", ".join(f"{each.before or 'the start'} to {each.after}" for each in ranges) or "no stated range"

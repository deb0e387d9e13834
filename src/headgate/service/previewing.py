"""What a subscription would get and cost before it is made: judged by the last rows that the root log holds.

The root log holds the rows that somebody wanted. Of rows that nobody wanted only the number is known, so that the share
of rows that would match lies between two bounds, which are the same where somebody takes the whole stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.fabric import Fabric
from headgate.filters import context_types
from headgate.filters.profiles import profile_type
from headgate.grid.predicate import grid_predicate
from headgate.matching import ClassLists
from headgate.model import Stream, Subscription
from headgate.relay.root import readable
from headgate.service.attainment import path_of
from headgate.wire.frame import WireError
from headgate.wire.snapshot import Snapshot

ROWS: Final = 4000
"""Rows that are looked at, unless there are fewer."""
_MESSAGES: Final = 400
"""How far back in the root log they are looked for."""


@dataclass(frozen=True)
class RecentRows:
    """The newest rows of a stream that somebody wanted, in batches with their classes.

    `evaluated` also counts the rows between them that nobody wanted.
    """

    batches: tuple[tuple[pa.RecordBatch, ClassLists], ...]
    evaluated: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Hop:
    """A link of the path: which part of the stream's rows it would carry in addition, and what that is in bytes."""

    link: str
    extra_share: float
    extra_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Preview:
    """How many of the rows that were looked at would match, and what each link of the path would carry in addition."""

    stream: str
    matched: int
    looked_at: int
    evaluated: int
    since_ms: int | None
    rate_rows_per_s: float | None
    path: tuple[str, ...]
    hops: tuple[Hop, ...]

    def to_document(self) -> dict[str, Any]:
        """JSON-ready; `attached` says whether the site is in the stream's tree already."""
        unknown = self.evaluated - self.looked_at
        total = self.evaluated or None
        return {
            "stream": self.stream,
            "matched": self.matched,
            "looked_at": self.looked_at,
            "evaluated": self.evaluated,
            "since_ms": self.since_ms,
            "share_at_least": None if total is None else self.matched / total,
            "share_at_most": None if total is None else (self.matched + unknown) / total,
            "rows_per_s": (
                None if total is None or self.rate_rows_per_s is None else self.rate_rows_per_s * self.matched / total
            ),
            "path": list(self.path),
            "hops": [
                {"link": hop.link, "extra_share": hop.extra_share, "extra_bytes_per_s": hop.extra_bytes_per_s}
                for hop in self.hops
            ],
        }


async def read_recent(fabric: Fabric, stream: Stream, wanted: int = ROWS) -> RecentRows:
    """The newest rows of a stream, as far as its root log holds them."""
    log, subject = fabric.logs.root(stream.name), fabric.logs.commit(stream.name)
    last = await fabric.last(log, subject)
    if last is None:
        return RecentRows((), 0, None)
    stored = await fabric.read(log, subject, max(last.sequence - _MESSAGES, 0))
    found: list[tuple[pa.RecordBatch, ClassLists]] = []
    rows, evaluated, since_ms = 0, 0, None
    for _, manifest in reversed(list(readable(fabric, stored))):
        for part in manifest.parts:
            message = await fabric.get(log, part.log_sequence) if part.log_sequence else None
            try:
                decoded = None if message is None else fabric.codec.part(message.data, stream.schema.arrow)
            except WireError:
                decoded = None
            if part.log_sequence and decoded is None:
                continue  # it was purged: its rows are not counted either
            evaluated += part.evaluated
            if decoded is not None:
                found.append((decoded.rows, decoded.classes))
                rows += decoded.rows.num_rows
        since_ms = manifest.time_ms
        if evaluated >= wanted:
            break
    return RecentRows(tuple(found), evaluated, since_ms)


def preview(
    snapshot: Snapshot, subscription: Subscription, recent: RecentRows, planner: Mapping[str, Any], rate: float | None
) -> Preview:
    """What a subscription, which was checked already, would have got of recent rows, and what links would carry."""
    name = subscription.stream
    stream = snapshot.deployment.streams[name]
    measured = planner.get("streams", {}).get(name, {})
    rate = stream_rate(stream, planner, rate)
    path = path_of(snapshot, name, subscription.site)
    links = list(pairwise(path)) if path[0] == stream.root else []
    below = {child: np.array(sorted(_classes_below(snapshot, name, child)), np.uint32) for _, child in links}
    matched, extra = 0, dict.fromkeys(below, 0)
    for rows, classes in recent.batches:
        mask = matching(subscription, stream, rows)
        matched += int(mask.sum())
        for child, ids in below.items():
            extra[child] += int((mask & ~_carried(classes, ids)).sum())
    total, row_bytes = max(recent.evaluated, 1), measured.get("row_bytes")
    hops = tuple(
        Hop(
            f"{parent}->{child}",
            extra[child] / total,
            None if rate is None or row_bytes is None else extra[child] / total * rate * row_bytes,
        )
        for parent, child in links
    )
    looked_at = sum(rows.num_rows for rows, _ in recent.batches)
    return Preview(
        name, matched, looked_at, recent.evaluated, recent.since_ms, rate, tuple(path) if links else (), hops
    )


def stream_rate(stream: Stream, planner: Mapping[str, Any], lately: float | None = None) -> float | None:
    """How many rows of a stream come a second: as the planner has measured, as seen lately, or as declared."""
    measured: float | None = planner.get("streams", {}).get(stream.name, {}).get("rate")
    return measured or lately or stream.rate_rows_per_s


def matching(subscription: Subscription, stream: Stream, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which rows the filter, the region and the resolution let through."""
    context = subscription.context
    profile = profile_type(subscription.profile).compile(subscription.where, stream.schema, context_types(context))
    mask = np.asarray(profile.evaluate(rows, context), dtype=bool)
    grid = grid_predicate(subscription, stream)
    return mask if grid is None else mask & np.asarray(grid.evaluate(rows, context), dtype=bool)


def _carried(classes: ClassLists, wanted: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Which rows satisfy one of some classes already."""
    found: npt.NDArray[np.bool_] = classes.restrict(np.sort(wanted)).counts() > 0
    return found


def _classes_below(snapshot: Snapshot, stream: str, site: str) -> Iterator[int]:
    """The classes of a stream that are wanted at a site or at one that gets the stream through it."""
    parents = snapshot.plan.trees[stream].parents if snapshot.plan and stream in snapshot.plan.trees else {}
    for name, each in snapshot.deployment.subscriptions.items():
        at: str | None = each.site
        while each.stream == stream and at is not None:
            if at == site:
                yield snapshot.class_ids[name]
                break
            at = parents.get(at)

"""Which sites serve which parts of a gridded stream, as the subscriptions of a revision say.

A subscription with `serves` is a part that its site owns. Together the parts are the grid; where they overlap, the one
that was made last counts, so that parts can be split and merged by making the new ones before the old ones end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.errors import HeadgateError
from headgate.grid.errors import GridError
from headgate.grid.layout import layout_of
from headgate.grid.serving.partition import Partition
from headgate.grid.serving.served_grid import ServedGrid
from headgate.grid.serving.tiling import Tile, partition_of
from headgate.model import Stream, parse_duration
from headgate.wire.snapshot import Snapshot

AHEAD_S = 3.0
REPLICATES = "replicas"
AHEAD = "replicas_ahead"


@dataclass(frozen=True, slots=True)
class OwnPart:
    """A part that a site owns: the subscription that fills it, and how much the site may send to readers."""

    subscription: str
    id: int
    site: str
    tile: Tile
    bytes_per_s: float


@dataclass(frozen=True, eq=False)
class ServingBrief:
    """Everything that the sites of one stream agree on. Those with the same `generation` know the same parts."""

    stream: Stream
    grid: ServedGrid
    parts: tuple[OwnPart, ...]
    partition: Partition
    replicates: bool
    ahead_s: float
    generation: int

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that own a part, in an order that all know."""
        return self.partition.sites

    def bytes_per_s(self, site: str) -> float:
        """What a site may send to readers and replicas."""
        return sum(part.bytes_per_s for part in self.parts if part.site == site)

    def own(self, site: str) -> tuple[OwnPart, ...]:
        """The parts of a site."""
        return tuple(part for part in self.parts if part.site == site)

    @property
    def limit(self) -> int:
        """Digits to which regions are replicated: none where each site keeps to its own."""
        return self.grid.space.digits * 3 // 4 if self.replicates else 0


def parts_of(snapshot: Snapshot, stream: str) -> tuple[OwnPart, ...]:
    """The parts of a stream, oldest first."""
    layout = layout_of(snapshot.deployment.streams[stream])
    found = []
    for name, each in snapshot.deployment.subscriptions.items():
        if each.stream == stream and each.serves_bytes_per_s is not None and layout is not None:
            tile = ServedGrid(layout).tile(each.region, f"subscription {name!r}, region")
            found.append(OwnPart(name, snapshot.subscription_ids[name], each.site, tile, each.serves_bytes_per_s))
    return tuple(sorted(found, key=lambda part: part.id))


def serving_brief(snapshot: Snapshot, stream: str) -> ServingBrief | None:
    """What holds for a stream; None where nobody serves it.

    Raises:
        GridError: Its parts are not the whole grid.
    """
    parts = parts_of(snapshot, stream)
    found = snapshot.deployment.streams[stream]
    layout = layout_of(found)
    if not parts or layout is None:
        return None
    grid = ServedGrid(layout)
    try:
        partition = partition_of(grid.space, [(part.site, part.tile) for part in parts])
    except ValueError as error:
        raise GridError(
            str(error), where=f"stream {stream!r}", hint="give the missing box to a subscription with `serves`"
        ) from error
    options = snapshot.deployment.options
    replicates, ahead_s = bool(options.get(REPLICATES, True)), parse_duration(str(options.get(AHEAD, f"{AHEAD_S} s")))
    told = (grid.space.order, parts, partition.owners.tobytes(), replicates, ahead_s)
    digest = hashlib.sha256(repr(told).encode()).digest()
    return ServingBrief(found, grid, parts, partition, replicates, ahead_s, int.from_bytes(digest[:7], "big"))


def serving_briefs(snapshot: Snapshot) -> tuple[dict[str, ServingBrief], Mapping[str, str]]:
    """All streams that are served, and by stream why one cannot be."""
    briefs, problems = {}, {}
    for name in {
        each.stream for each in snapshot.deployment.subscriptions.values() if each.serves_bytes_per_s is not None
    }:
        try:
            brief = serving_brief(snapshot, name)
        except HeadgateError as error:
            problems[name] = str(error)
        else:
            if brief is not None:
                briefs[name] = brief
    return briefs, problems

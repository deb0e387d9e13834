"""Region roots, checked and subscribed to: a gridded stream that several sites number, each the rows of its region.

```yaml
streams:
  weather:
    grid: {x: {column: lon, bounds: [-10, 30], size: 32}, y: {column: lat, bounds: [35, 60], size: 32}}
    roots:
      west: {site: oslo, region: {box: {x: [-10, 10]}}}
      east: {site: rome, region: {box: {x: [10, 30]}}}
```
Each root is a stream of its own, `weather-west`, with its own job, sequence, order and ledger. A subscription to
`weather` is one to every root whose region it may have rows in (`map` becomes `map-west` and `map-east`), and a client
that reads `map` reads them together, in the order of each root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headgate.grid.bounds import Span, bounds_of
from headgate.grid.errors import GridError, at
from headgate.grid.layout import GridLayout, layout_of
from headgate.grid.region import BoxRegion, Region, parse_region
from headgate.grid.resolution import Resolution
from headgate.model import Stream, Subscription
from headgate.model.roots import member_name, root_region


def check_roots(regions: Mapping[str, Mapping[str, Any]], stream: Stream) -> None:
    """Refuse regions that are no boxes, that share a place, or that leave one out: a row has one root."""
    where, layout = f"stream {stream.name!r}, roots", layout_of(stream)
    if layout is None:
        raise GridError("region roots need a grid", where=where, hint="give the stream a `grid:`, or one `root`")
    boxes: dict[str, BoxRegion] = {}
    for name, document in regions.items():
        found = parse_region(document, layout, where=at(where, f"{name}.region"))
        if not isinstance(found, BoxRegion):
            raise GridError("the region of a root is a box", where=at(where, f"{name}.region"), hint="write {box: ...}")
        boxes[name] = found
    names = list(boxes)
    for number, one in enumerate(names):
        for other in names[:number]:
            if _share(boxes[one], boxes[other], layout):
                raise GridError(
                    f"the regions of {other!r} and {one!r} overlap",
                    where=at(where, f"{one}.region"),
                    hint="upper bounds do not belong to a box: let one begin where the other ends",
                )
    whole = layout.x.extent * layout.y.extent
    covered = sum((box.x[1] - box.x[0]) * (box.y[1] - box.y[0]) for box in boxes.values())
    if covered < whole * (1 - 1e-9):
        raise GridError(
            f"the regions of the roots leave out {1 - covered / whole:.1%} of the grid",
            where=where,
            hint="every place needs a root: let the regions together be the bounds of x and y",
        )


def _share(one: BoxRegion, other: BoxRegion, layout: GridLayout) -> bool:
    if max(one.y[0], other.y[0]) >= min(one.y[1], other.y[1]):
        return False
    turns = (-layout.x.extent, 0.0, layout.x.extent) if layout.x.wrap else (0.0,)
    return any(max(one.x[0], other.x[0] + turn) < min(one.x[1], other.x[1] + turn) for turn in turns)


def spread(subscription: Subscription, members: Mapping[str, Stream]) -> list[Subscription]:
    """A subscription to a stream of several roots, as one for each root that may have rows of it."""
    found = []
    for root, stream in members.items():
        layout, mine = layout_of(stream), root_region(stream)
        assert layout is not None
        assert mine is not None
        wanted = replace(subscription, name=member_name(subscription.name, root), stream=stream.name)
        if subscription.region is not None:
            place = f"subscription {subscription.name!r}, region"
            region = parse_region(subscription.region, layout, where=place)
            # A circle around a position may be anywhere later on.
            if not region.parameters and not _meet(layout, mine.region, region):
                continue
        found.append(wanted)
    return found


def _meet(layout: GridLayout, root: Mapping[str, Any], region: Region) -> bool:
    """Whether a region may have something in a root's box, judged by the boxes around it."""
    ours, _ = bounds_of(layout, parse_region(root, layout), Resolution(), {})
    theirs, _ = bounds_of(layout, region, Resolution(), {})
    return any(_overlap(one, other) for one in ours for other in theirs)


def _overlap(one: Mapping[str, Span], other: Mapping[str, Span]) -> bool:
    both = one.keys() & other.keys()
    return all(max(one[name][0], other[name][0]) <= min(one[name][1], other[name][1]) for name in both)

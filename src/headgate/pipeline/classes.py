"""From a snapshot to the index of a stream: every delivery class compiled once per version."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.catalog import Snapshot
from headgate.filters import context_types
from headgate.filters.profiles import compile_profile
from headgate.grid import GridLayout, layout_of, place_schema, with_grid, with_places
from headgate.matching import ClassLists, ClassSpec, Index, build_index
from headgate.matching.lists import Ids
from headgate.matching.scan import ScanIndex


@dataclass(frozen=True, slots=True)
class GriddedIndex:
    """The index of a gridded stream: rows are matched with their places on the grid, computed once for all classes."""

    inner: Index
    layout: GridLayout

    @property
    def classes(self) -> Ids:
        """The ids it knows, ascending."""
        return self.inner.classes

    def match(self, batch: pa.RecordBatch) -> ClassLists:
        """The classes of each row."""
        return self.inner.match(with_places(batch, self.layout))


def class_specs(snapshot: Snapshot, stream: str, layout: GridLayout | None = None) -> list[ClassSpec]:
    """The delivery classes of a stream under a snapshot, each once; a gridded stream's share the `layout`."""
    source = snapshot.deployment.streams[stream]
    layout = layout_of(source) if layout is None else layout
    found: dict[int, ClassSpec] = {}
    for name, subscription in snapshot.deployment.subscriptions.items():
        class_id = snapshot.class_ids[name]
        if subscription.stream == stream and class_id not in found:
            types = context_types(subscription.context)
            rows = compile_profile(subscription.profile, subscription.where, source.schema, types)
            wanted = with_grid(rows, subscription, source, layout=layout)
            found[class_id] = ClassSpec(class_id, wanted, dict(subscription.context))
    return list(found.values())


def index_of(snapshot: Snapshot, stream: str) -> Index:
    """The index that a pinned version stands for."""
    source = snapshot.deployment.streams[stream]
    layout = layout_of(source)
    specs = class_specs(snapshot, stream, layout)
    if layout is None:
        return build_index(source.schema, specs)
    inner = build_index(place_schema(source.schema, layout), specs)
    return inner if isinstance(inner, ScanIndex) else GriddedIndex(inner, layout)

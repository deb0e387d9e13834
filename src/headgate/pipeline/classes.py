"""From a snapshot to the index of a stream: every delivery class compiled once per version."""

from __future__ import annotations

from headgate.catalog import Snapshot
from headgate.filters import context_types
from headgate.filters.profiles import compile_profile
from headgate.grid import layout_of, with_grid
from headgate.matching import ClassSpec, Index, build_index


def class_specs(snapshot: Snapshot, stream: str) -> list[ClassSpec]:
    """The delivery classes of a stream under a snapshot, each once."""
    source = snapshot.deployment.streams[stream]
    layout = layout_of(source)
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
    return build_index(snapshot.deployment.streams[stream].schema, class_specs(snapshot, stream))

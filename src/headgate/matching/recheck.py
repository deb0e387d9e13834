"""Classes that boxes do not decide are evaluated on the rows that have them, and only there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headgate.matching.index import ClassSpec
from headgate.matching.lists import ClassLists
from headgate.matching.metering import Meter


def recheck(
    found: ClassLists, batch: pa.RecordBatch, unsure: Mapping[int, ClassSpec], meter: Meter | None = None
) -> ClassLists:
    """The lists without the entries of unsure classes whose filter is not true for the row."""
    ids = np.sort(np.fromiter(unsure, np.uint32, len(unsure)))
    if len(ids) == 0:
        return found
    places = np.minimum(np.searchsorted(ids, found.ids), len(ids) - 1)
    chosen = np.flatnonzero(ids[places] == found.ids)
    if len(chosen) == 0:
        return found
    rows = found.row_of_id()
    order = chosen[np.argsort(found.ids[chosen], kind="stable")]
    present, starts = np.unique(found.ids[order], return_index=True)
    keep = np.ones(len(found.ids), bool)
    for identity, part in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        spec = unsure[identity]
        some = batch.select(list(spec.filter.columns)).take(pa.array(rows[part]))
        keep[part] = spec.filter.evaluate(some, spec.context) if meter is None else meter.evaluate(spec, some)
    kept = np.zeros(len(keep) + 1, np.int64)
    np.cumsum(keep, out=kept[1:])
    return ClassLists(kept[found.offsets], found.ids[keep])

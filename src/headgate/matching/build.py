"""The one place that decides which index a set of classes gets."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headgate.matching.index import ClassSpec, Index
from headgate.matching.scan import ScanIndex
from headgate.model import Schema

SCAN_LIMIT = 24


def build_index(schema: Schema, classes: Iterable[ClassSpec], sample: pa.RecordBatch | None = None) -> Index:
    """The index of these classes over rows of that schema; every filter's columns must be in it.

    Up to `SCAN_LIMIT` classes are scanned, which needs no compiler; more are compiled. A sample of rows lets the
    compiled index split where rows fall.

    >>> build_index(Schema.of({"t": "double"}), []).classes
    array([], dtype=uint32)
    """
    found = list(classes)
    for spec in found:
        schema.select(spec.filter.columns)
    if len(found) <= SCAN_LIMIT:
        return ScanIndex(found)
    from headgate.matching.compiled.class_index import ClassIndex

    return ClassIndex(schema, found, sample)

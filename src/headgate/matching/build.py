"""The one place that decides which index a set of classes gets."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.matching.index import ClassSpec, Index
from headgate.matching.scan import ScanIndex
from headgate.model import Schema


def build_index(schema: Schema, classes: Iterable[ClassSpec]) -> Index:
    """The index of these classes over rows of that schema; every filter's columns must be in it.

    >>> build_index(Schema.of({"t": "double"}), []).classes
    array([], dtype=uint32)
    """
    found = list(classes)
    for spec in found:
        schema.select(spec.filter.columns)
    return ScanIndex(found)

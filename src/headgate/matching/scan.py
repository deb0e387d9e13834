"""The index that evaluates every class over the whole batch: the oracle of all others, and best for tens of classes.

With more of them, classes of keywords are evaluated only on the rows that have one of their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.matching.index import ClassSpec, check_unique
from headgate.matching.lists import ClassLists, Ids
from headgate.matching.metering import Meter

# Splitting a text into words costs as much as looking for a few of them.
WORDED_FROM = 8


class ScanIndex:
    """One vectorised evaluation per class and batch, nothing compiled, nothing shared between classes."""

    __slots__ = ("_classes", "_ids", "meter")

    def __init__(self, classes: Iterable[ClassSpec]) -> None:
        found = sorted(classes, key=lambda spec: spec.id)
        self._ids = check_unique(np.array([spec.id for spec in found], np.uint32))
        self._classes = {spec.id: spec for spec in found}
        self.meter: Meter | None = None
        """What evaluates classes by the clock; None evaluates them without one."""

    @property
    def classes(self) -> Ids:
        """The ids it knows, ascending."""
        return self._ids

    def match(self, batch: pa.RecordBatch) -> ClassLists:
        """The classes of each row."""
        from headgate.filters.profiles.words import Worded, evaluate_worded

        worded = {
            identity: (spec.filter, spec.context)
            for identity, spec in self._classes.items()
            if isinstance(spec.filter, Worded) and spec.filter.words is not None
        }
        if len(worded) < WORDED_FROM:
            worded = {}
        taken = dict(evaluate_worded(batch, worded)) if worded else {}
        for identity, spec in self._classes.items():
            if identity in worded:
                continue
            meter = self.meter
            mask = spec.filter.evaluate(batch, spec.context) if meter is None else meter.evaluate(spec, batch)
            hits = np.flatnonzero(mask)
            if len(hits):
                taken[identity] = hits
        return ClassLists.from_hits(taken, batch.num_rows)

    def add(self, classes: Iterable[ClassSpec]) -> None:
        """Add classes; an id that is known already is refused and nothing is changed."""
        found = {spec.id: spec for spec in classes}
        self._ids = check_unique(np.concatenate([self._ids, np.fromiter(found, np.uint32, len(found))]))
        self._classes = dict(sorted({**self._classes, **found}.items()))

    def remove(self, ids: Iterable[int]) -> None:
        """Forget classes; unknown ids are ignored."""
        gone = set(ids)
        self._classes = {identity: spec for identity, spec in self._classes.items() if identity not in gone}
        self._ids = np.fromiter(self._classes, np.uint32, len(self._classes))

    def context(self, identity: int) -> Mapping[str, Any]:
        """The context of one class."""
        return self._classes[identity].context

    def bind(self, identity: int, context: Mapping[str, Any]) -> None:
        """Replace the context of one class."""
        spec = self._classes[identity]
        self._classes[identity] = ClassSpec(spec.id, spec.filter, context)

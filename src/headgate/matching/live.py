"""The index of a running stream: built once, saved, mapped by workers, and changed in place from then on.

It holds what matching needs and no more: boxes in flat arrays, the filters of the few classes that boxes do not decide,
and for classes with a context the number of their filter, so that new values can be bound. A change of the class set is
an `IndexDelta`, which another process applies to reach the same state; new context values are bound in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.matching.build import SCAN_LIMIT
from headgate.matching.definitions import ClassGroup, RowReading
from headgate.matching.evaluated import Evaluated
from headgate.matching.index import ClassSpec, MatchingError, RowFilter, check_unique
from headgate.matching.lists import ClassLists, Ids
from headgate.matching.metering import Meter
from headgate.matching.recheck import recheck

if TYPE_CHECKING:
    from headgate.matching.compiled.boxes import Boxes
    from headgate.matching.compiled.index import BoxIndex
    from headgate.matching.compiled.labels import Labels
    from headgate.matching.compiled.templates import RangeTemplate

_NO_IDS = np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class Beside:
    """What an index has beside its boxes: all ids, classes that are evaluated, and the filters of named classes.

    `scanned` and `checked` give the context of classes that are evaluated on every row, or on the rows whose boxes
    they are in. `named` ids have the filter `texts[numbers]`: the evaluated ones and those whose context can change.
    """

    ids: Ids = field(default_factory=lambda: _NO_IDS)
    named: Ids = field(default_factory=lambda: _NO_IDS)
    numbers: Ids = field(default_factory=lambda: _NO_IDS)
    texts: tuple[str, ...] = ()
    scanned: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    checked: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexDelta:
    """What changes between two versions: classes that end, then classes that begin."""

    removed: Ids
    boxes: Boxes | None
    labels: Mapping[str, Labels]
    beside: Beside


class LiveIndex:
    """Classes of one stream at one version and one place of the context log. `Index`, and changed in place."""

    def __init__(self, reading: RowReading, boxes: BoxIndex | None, beside: Beside) -> None:
        self._reading = reading
        self._types = {column.name: column.type for column in reading.schema.columns}
        self._filters: dict[str, RowFilter] = {}
        self._templates: dict[str, RangeTemplate | None] = {}
        self._boxes = boxes
        self._ids = _NO_IDS
        self._named = self._numbers = _NO_IDS
        self._texts: list[str] = []
        self._scan = Evaluated(reading.kind_of)
        self._checked: dict[int, ClassSpec] = {}
        self._admit(beside)

    @classmethod
    def build(
        cls,
        reading: RowReading,
        groups: Sequence[ClassGroup],
        sample: pa.RecordBatch | None = None,
        limit: int = SCAN_LIMIT,
    ) -> LiveIndex:
        """The index of these classes; up to `limit` of them are evaluated one by one, which needs no compiler."""
        index = cls(reading, None, Beside())
        check_unique(np.concatenate([_NO_IDS, *(group.ids for group in groups)]))
        if sum(len(group.ids) for group in groups) <= limit:
            index._admit(index._beside(groups, scanned=None, checked=()))
            return index
        from headgate.matching.compiled.placing import build_boxes, place

        placed = place(groups, index._filter, index._template, index._types, index._owned)
        index._boxes = build_boxes(index._types, placed, sample)
        index._admit(index._beside(groups, None if index._boxes is None else placed.scanned, placed.checked))
        return index

    @property
    def classes(self) -> Ids:
        """The ids it knows, ascending."""
        return self._ids

    @property
    def boxes(self) -> BoxIndex | None:
        """The compiled part, None when every class is evaluated."""
        return self._boxes

    @property
    def beside(self) -> Beside:
        """All that is not in the boxes, as a file keeps it."""
        return Beside(
            self._ids,
            self._named,
            self._numbers,
            tuple(self._texts),
            {identity: self._scan.context(identity) for identity in self._scan.classes.tolist()},
            {identity: spec.context for identity, spec in self._checked.items()},
        )

    def match(self, batch: pa.RecordBatch) -> ClassLists:
        """The classes of each row."""
        if self._boxes is None:
            return self._scan.match(batch)
        if self._reading.prepare is not None:
            batch = self._reading.prepare(batch)
        meter = self._scan.meter
        spans = () if meter is None else meter.spans(batch.num_rows, self._decided)
        scanned, found = self._scan.match(batch), self._boxes.match(batch, plain=bool(self._checked), spans=spans)
        return recheck(found, batch, self._checked, meter).joined(scanned)

    def _decided(self, ids: Ids) -> Ids:
        """Those of some classes that the boxes decide alone."""
        mine = np.setdiff1d(np.intersect1d(ids, self._ids), self._scan.classes)
        return np.setdiff1d(mine, np.fromiter(self._checked, np.uint32, len(self._checked)))

    def measure(self, meter: Meter | None) -> None:
        """Evaluate the classes that boxes do not decide by a clock, and serve all by what it says."""
        self._scan.meter = meter

    def _filter(self, text: str) -> RowFilter:
        if text not in self._filters:
            self._filters[text] = self._reading.compile(text)
        return self._filters[text]

    def _owned(self, text: str) -> bool:
        """Whether the profile type of a filter has an index of its own for it."""
        return self._scan.kind(text, self._filter(text)) is not None

    def _template(self, text: str) -> RangeTemplate | None:
        if text not in self._templates:
            from headgate.matching.compiled.templates import RangeTemplate

            self._templates[text] = RangeTemplate.of(self._filter(text))
        return self._templates[text]

    def plan(self, removed: Ids, added: Sequence[ClassGroup], *, limit: int = SCAN_LIMIT) -> IndexDelta | None:
        """What leads to the index without some classes and with others; None when it has to be built again.

        That is so when a class has a column or a string that the boxes have no room for, or when there are no boxes
        and more classes than are worth evaluating one by one.
        """
        if self._boxes is None:
            count = len(self._ids) - len(removed) + sum(len(group.ids) for group in added)
            return None if count > limit else IndexDelta(removed, None, {}, self._beside(added, None, ()))
        from headgate.matching.compiled.placing import place

        placed = place(added, self._filter, self._template, self._types, self._owned)
        labels = placed.grown(self._boxes)
        if labels is None:
            return None
        boxes = None if placed.empty else placed.boxes(self._boxes.attributes, {**self._boxes.labels, **labels})
        return IndexDelta(removed, boxes, labels, self._beside(added, placed.scanned, placed.checked))

    def _beside(self, groups: Sequence[ClassGroup], scanned: Iterable[int] | None, checked: Iterable[int]) -> Beside:
        """What new classes need beside their boxes; `scanned` None is all of them."""
        every, unsure = scanned is None, set(checked)
        asked = unsure.union(() if scanned is None else scanned)
        texts: list[str] = []
        named, numbers = [], []
        contexts: dict[int, Mapping[str, Any]] = {}
        for group in groups:
            ids, bound = group.ids, bool(getattr(self._filter(group.template), "parameters", ()))
            places = range(len(ids)) if every else [k for k, each in enumerate(ids.tolist()) if each in asked]
            contexts.update({int(ids[place]): dict(group.context(place)) for place in places if asked or every})
            chosen = ids if bound or every else ids[list(places)]
            if len(chosen):
                named.append(chosen)
                numbers.append(np.full(len(chosen), len(texts), np.uint32))
                texts.append(group.template)
        return Beside(
            np.sort(np.concatenate([_NO_IDS, *(group.ids for group in groups)])),
            np.concatenate([_NO_IDS, *named]),
            np.concatenate([_NO_IDS, *numbers]),
            tuple(texts),
            {identity: context for identity, context in contexts.items() if identity not in unsure},
            {identity: context for identity, context in contexts.items() if identity in unsure},
        )

    def apply(self, delta: IndexDelta) -> None:
        """Bring the index to the version that a plan leads to; a plan holds for the version that it was made from."""
        gone = delta.removed
        self._ids = np.setdiff1d(self._ids, gone)
        kept = ~np.isin(self._named, gone)
        self._named, self._numbers = self._named[kept], self._numbers[kept]
        self._scan.remove(gone.tolist())
        for identity in gone.tolist():
            self._checked.pop(identity, None)
        if self._boxes is not None:
            self._boxes.adopt_labels(delta.labels)
            self._boxes.remove(gone)
            if delta.boxes is not None and len(delta.boxes):
                self._boxes.add(delta.boxes)
        self._admit(delta.beside)

    def _admit(self, beside: Beside) -> None:
        self._ids = np.union1d(self._ids, beside.ids).astype(np.uint32)
        known = {text: number for number, text in enumerate(self._texts)}
        for text in beside.texts:
            if text not in known:
                known[text] = len(self._texts)
                self._texts.append(text)
        renumbered = np.array([known[text] for text in beside.texts], np.uint32)
        named = np.concatenate([self._named, beside.named])
        numbers = np.concatenate([self._numbers, renumbered[beside.numbers] if len(renumbered) else _NO_IDS])
        order = np.argsort(named, kind="stable")
        self._named, self._numbers = named[order], numbers[order]
        self._scan.add(self._specs(beside.scanned))
        self._checked.update({spec.id: spec for _, spec in self._specs(beside.checked)})

    def _specs(self, contexts: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[str, ClassSpec]]:
        for identity, context in contexts.items():
            text = self._text_of(identity)
            yield text, ClassSpec(identity, self._filter(text), context)

    def filter_of(self, identity: int) -> RowFilter | None:
        """The filter of a class whose context can change, None for others."""
        place = int(np.searchsorted(self._named, identity))
        if place == len(self._named) or self._named[place] != identity:
            return None
        return self._filter(self._texts[int(self._numbers[place])])

    def _text_of(self, identity: int) -> str:
        place = int(np.searchsorted(self._named, identity))
        if place == len(self._named) or self._named[place] != identity:
            raise MatchingError(f"class {identity} is not in the index", hint="add it first")
        return self._texts[int(self._numbers[place])]

    def bind(self, contexts: Mapping[int, Mapping[str, Any]]) -> None:
        """Give classes other values for their `$names`, all of them at once; ids that are unknown are left out.

        Classes of one filter are bound in one pass over a table of their values.
        """
        wanted = np.fromiter(contexts, np.uint32, len(contexts))
        places = np.minimum(np.searchsorted(self._named, wanted), max(0, len(self._named) - 1))
        if len(self._named) == 0:
            return
        known = self._named[places] == wanted
        numbers = self._numbers[places[known]]
        ids = wanted[known]
        groups = []
        for number in np.unique(numbers).tolist():
            same = ids[numbers == number]
            groups.append(ClassGroup(self._texts[number], same, [contexts[each] for each in same.tolist()]))
        if groups:
            self._bind(ids, groups, contexts)

    def _bind(self, ids: Ids, groups: Sequence[ClassGroup], contexts: Mapping[int, Mapping[str, Any]]) -> None:
        if self._boxes is None:
            for identity in ids.tolist():
                self._scan.bind(identity, contexts[identity])
            return
        from headgate.matching.compiled.placing import place

        placed = place(groups, self._filter, self._template, self._types, self._owned)
        labels = placed.grown(self._boxes)
        if labels is None and len(ids) > 1:
            for identity in ids.tolist():
                self.bind({identity: contexts[identity]})
            return
        if labels is None:  # no room for a string or a column: evaluated until the index is built again, still exact
            placed.scanned, placed.checked, placed.pieces, placed.ranges = ids.tolist(), [], [], []
            labels = {}
        self._boxes.adopt_labels(labels)
        self._boxes.remove(ids)
        self._scan.remove(ids.tolist())
        for identity in ids.tolist():
            self._checked.pop(identity, None)
        if not placed.empty:
            self._boxes.add(placed.boxes(self._boxes.attributes, self._boxes.labels))
        self._scan.add(self._specs({identity: contexts[identity] for identity in placed.scanned}))
        self._checked.update(
            {spec.id: spec for _, spec in self._specs({identity: contexts[identity] for identity in placed.checked})}
        )

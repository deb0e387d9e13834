"""The index of delivery classes: boxes in the compiled index, what is no box beside it, both exact.

Classes whose boxes do not decide alone are evaluated on the rows that the index found for them, and only there. Classes
that the index cannot narrow are evaluated on every row, as `ScanIndex` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.matching.compiled.bounded import class_pieces
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.labels import Labels
from headgate.matching.compiled.pieces import Pieces, attributes_of, boxes_of, text_columns, texts_of
from headgate.matching.index import ClassSpec, MatchingError, check_unique
from headgate.matching.lists import ClassLists, Ids
from headgate.matching.recheck import recheck
from headgate.matching.scan import ScanIndex
from headgate.model import Schema


class ClassIndex:
    """Classes of one stream, compiled; add, remove and bind them in place."""

    __slots__ = ("_boxes", "_checked", "_pieces", "_sample", "_scan", "_specs", "_types")

    def __init__(self, schema: Schema, classes: Iterable[ClassSpec], sample: pa.RecordBatch | None = None) -> None:
        found = list(classes)
        check_unique(np.array([spec.id for spec in found], np.uint32))
        self._types = {column.name: column.type for column in schema.columns}
        self._sample = sample
        self._specs = {spec.id: spec for spec in found}
        self._pieces = {spec.id: class_pieces(spec, self._types) for spec in found}
        self._compile()

    def _compile(self) -> None:
        indexed = [piece for piece in self._pieces.values() if piece is not None and piece.indexable]
        columns = {name for piece in indexed for name in piece.columns}
        self._boxes: BoxIndex | None = None
        if columns:
            attributes = attributes_of(columns, self._types)
            texts = texts_of(indexed, text_columns(attributes))
            labels = {name: Labels.of(strings) for name, strings in texts.items()}
            boxes = boxes_of(indexed, attributes, labels)
            self._boxes = BoxIndex.build(attributes, boxes, labels, self._sample)
        inside = {piece.id for piece in indexed} if columns else set()
        self._scan = ScanIndex(spec for spec in self._specs.values() if spec.id not in inside)
        self._checked = {piece.id: self._specs[piece.id] for piece in indexed if piece.id in inside and not piece.exact}

    @property
    def classes(self) -> Ids:
        """The ids it knows, ascending."""
        return np.sort(np.fromiter(self._specs, np.uint32, len(self._specs)))

    @property
    def boxes(self) -> BoxIndex | None:
        """The compiled part, None when no class is a box."""
        return self._boxes

    def match(self, batch: pa.RecordBatch) -> ClassLists:
        """The classes of each row."""
        scanned = self._scan.match(batch)
        if self._boxes is None:
            return scanned
        found = recheck(self._boxes.match(batch, plain=bool(self._checked)), batch, self._checked)
        return found.joined(scanned)

    def add(self, classes: Iterable[ClassSpec]) -> None:
        """Add classes; an id that is known already is refused and nothing is changed."""
        found = list(classes)
        check_unique(np.array([*self._specs, *(spec.id for spec in found)], np.uint32))
        pieces = {spec.id: class_pieces(spec, self._types) for spec in found}
        self._specs.update({spec.id: spec for spec in found})
        self._pieces.update(pieces)
        if not self._insert(pieces):
            self._compile()

    def remove(self, ids: Iterable[int]) -> None:
        """Forget classes; unknown ids are ignored."""
        gone = [identity for identity in ids if identity in self._specs]
        for identity in gone:
            del self._specs[identity], self._pieces[identity]
        self._scan.remove(gone)
        if self._boxes is not None:
            self._boxes.remove(np.array(gone, np.uint32))
        for identity in gone:
            self._checked.pop(identity, None)

    def bind(self, identity: int, context: Mapping[str, Any]) -> None:
        """Give a class another context; its boxes are replaced in place."""
        if identity not in self._specs:
            raise MatchingError(f"class {identity} is not in the index", hint="add it first")
        spec = ClassSpec(identity, self._specs[identity].filter, context)
        self.remove([identity])
        self.add([spec])

    def _insert(self, pieces: Mapping[int, Pieces | None]) -> bool:
        """Add boxes to the compiled part; False when that has to be built again."""
        indexed = [piece for piece in pieces.values() if piece is not None and piece.indexable]
        if indexed:
            boxes = self._boxes
            if boxes is None or not self._grow_labels(boxes, indexed):
                return False
            boxes.add(boxes_of(indexed, boxes.attributes, boxes.labels))
        inside = {piece.id for piece in indexed}
        self._scan.add(self._specs[identity] for identity in pieces if identity not in inside)
        self._checked.update({piece.id: self._specs[piece.id] for piece in indexed if not piece.exact})
        return True

    @staticmethod
    def _grow_labels(boxes: BoxIndex, indexed: list[Pieces]) -> bool:
        known = {attribute.name for attribute in boxes.attributes}
        if any(not piece.columns <= known for piece in indexed):
            return False
        grown: dict[str, Labels] = {}
        for name, strings in texts_of(indexed, text_columns(boxes.attributes)).items():
            more = boxes.labels[name].grown(strings)
            if more is None:
                return False
            grown[name] = more
        boxes.adopt_labels(grown)
        return True

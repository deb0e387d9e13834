"""Where classes go: boxes, boxes that are checked again, or evaluation on every row.

Classes of a range template are boxes from a table of their contexts; others are compiled one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.matching.compiled.bounded import class_pieces
from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.labels import Labels
from headgate.matching.compiled.pieces import Pieces, attributes_of, boxes_of, text_columns, texts_of
from headgate.matching.compiled.templates import RangeTemplate
from headgate.matching.definitions import ClassGroup
from headgate.matching.index import RowFilter
from headgate.matching.lists import Ids


@dataclass(slots=True)
class Placed:
    """Classes by where they go: `ranges` and `pieces` to the boxes, `checked` there too, `scanned` not."""

    ranges: list[tuple[RangeTemplate, Ids, pa.RecordBatch]] = field(default_factory=list)
    pieces: list[Pieces] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    scanned: list[int] = field(default_factory=list)

    @property
    def columns(self) -> set[str]:
        """The columns that boxes constrain."""
        found = {name for template, _, _ in self.ranges for name in template.columns}
        return found | {name for piece in self.pieces for name in piece.columns}

    @property
    def empty(self) -> bool:
        """Whether nothing goes to the boxes."""
        return not self.ranges and not self.pieces

    def boxes(self, attributes: Sequence[Attribute], labels: Mapping[str, Labels]) -> Boxes:
        """All boxes, over attributes that include `columns`."""
        parts = [template.boxes(ids, table, attributes) for template, ids, table in self.ranges]
        if self.pieces or not parts:
            parts.append(boxes_of(self.pieces, attributes, labels))
        if len(parts) == 1:
            return parts[0]
        return Boxes(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.exact for part in parts]),
            np.concatenate([part.nulls for part in parts]),
        )

    def grown(self, index: BoxIndex) -> dict[str, Labels] | None:
        """Dictionaries with room for every string, None when the index has no room or lacks a column."""
        if not self.columns <= {attribute.name for attribute in index.attributes}:
            return None
        found: dict[str, Labels] = {}
        for name, strings in texts_of(self.pieces, text_columns(index.attributes)).items():
            more = index.labels[name].grown(strings) if strings else index.labels[name]
            if more is None:
                return None
            if more is not index.labels[name]:
                found[name] = more
        return found


def place(
    groups: Iterable[ClassGroup],
    filter_of: Callable[[str], RowFilter],
    template_of: Callable[[str], RangeTemplate | None],
    types: Mapping[str, pa.DataType],
    owned: Callable[[str], bool] = lambda text: False,  # noqa: ARG005 (one signature)
) -> Placed:
    """Decide for each class, by its filter and context alone.

    `owned` filters have an index of their profile type beside the boxes: they go there where boxes are not exact.
    """
    found = Placed()
    for group in groups:
        template = template_of(group.template)
        if template is not None:
            contexts = group.contexts
            table = contexts if isinstance(contexts, pa.RecordBatch) else template.table(contexts)
            if table is not None:
                found.ranges.append((template, group.ids, table))
                continue
        for spec in group.specs(filter_of(group.template)):
            piece = class_pieces(spec, types)
            if piece is None or not piece.indexable or (not piece.exact and owned(group.template)):
                found.scanned.append(spec.id)
                continue
            found.pieces.append(piece)
            if not piece.exact:
                found.checked.append(spec.id)
    return found


def build_boxes(types: Mapping[str, pa.DataType], placed: Placed, sample: pa.RecordBatch | None) -> BoxIndex | None:
    """The compiled index of what goes to the boxes, None when nothing does or no column is constrained."""
    columns = placed.columns
    if not columns:
        return None
    attributes = attributes_of(columns, types)
    texts = texts_of(placed.pieces, text_columns(attributes))
    labels = {name: Labels.of(strings) for name, strings in texts.items()}
    return BoxIndex.build(attributes, placed.boxes(attributes, labels), labels, sample)

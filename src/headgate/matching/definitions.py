"""Classes as files and updates name them: which filter, and with which values of the subscriber's context.

A filter is named by a text of its owner's (`template`), which says everything but the context values, so that half a
million classes of one filter are one text and a table of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.matching.index import ClassSpec, RowFilter
from headgate.matching.lists import Ids
from headgate.model import Schema

Compile = Callable[[str], RowFilter]
"""The filter of a template's text; the same for equal texts."""


@dataclass(frozen=True, slots=True)
class RowReading:
    """How an index reads its classes and its rows: the columns that boxes may have, filters by text, rows made ready.

    `prepare` adds columns that only boxes use; rows that are evaluated class by class do without. `kind_of` names the
    profile type of a filter that is nothing but a profile: where boxes do not decide it, its type's own index may.
    """

    schema: Schema
    compile: Compile
    prepare: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    kind_of: Callable[[str], str | None] | None = None


@dataclass(frozen=True, slots=True)
class ClassDefinition:
    """One class: its id, its filter's text, and its context."""

    id: int
    template: str
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClassGroup:
    """Classes of one filter, with their contexts one by one or as a table with a column for each `$name`."""

    template: str
    ids: Ids
    contexts: Sequence[Mapping[str, Any]] | pa.RecordBatch

    def context(self, place: int) -> Mapping[str, Any]:
        """The context of the class at a place."""
        if isinstance(self.contexts, pa.RecordBatch):
            row: Mapping[str, Any] = self.contexts.slice(place, 1).to_pylist()[0]
            return row
        return self.contexts[place]

    def specs(self, where: RowFilter) -> Iterator[ClassSpec]:
        """The classes one by one."""
        for place, identity in enumerate(self.ids.tolist()):
            yield ClassSpec(identity, where, self.context(place))


def grouped(definitions: Iterable[ClassDefinition]) -> list[ClassGroup]:
    """Classes by filter, in the order in which filters are first met."""
    found: dict[str, list[ClassDefinition]] = {}
    for each in definitions:
        found.setdefault(each.template, []).append(each)
    return [
        ClassGroup(template, np.array([each.id for each in same], np.uint32), [each.context for each in same])
        for template, same in found.items()
    ]

"""From a class's filter to boxes of keys: the bridge between the algebra's normal form and the index.

A set of values that is several ranges becomes several boxes, up to a limit; past it the attribute with the most ranges
is covered by one range and the class is checked again. So is a class with a residual predicate, or with an attribute
that has no keys. A class whose boxes say nothing about it is not indexed at all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headgate.filters import Box, Domain, NormalForm, bind, normal_form
from headgate.filters.algebra import intervals
from headgate.filters.algebra.keys import space_of
from headgate.filters.expr import ColumnRef
from headgate.filters.profiles.base import relational
from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.coding import ALSO_NULLS, HIGHEST, LOWEST, NO_NULLS, ONLY_NULLS
from headgate.matching.compiled.keys import can_index, is_text
from headgate.matching.compiled.labels import Labels
from headgate.matching.index import ClassSpec

MAX_PIECES = 4096

# A range of keys or texts, both ends included or None for no end; the second form is NULL alone.
Range = tuple[Any, Any]
NULL_ONLY: Range = ("null", "null")


@dataclass(frozen=True, slots=True)
class Pieces:
    """The boxes of one class as ranges by column, before strings have labels. `exact` boxes decide alone."""

    id: int
    boxes: tuple[Mapping[str, Range], ...]
    exact: bool

    @property
    def columns(self) -> set[str]:
        """The columns that some box constrains."""
        return {name for box in self.boxes for name in box}

    @property
    def indexable(self) -> bool:
        """Whether the index narrows anything: always for an exact class, otherwise if every box has a constraint."""
        return self.exact or all(self.boxes)


def pieces_of(spec: ClassSpec) -> Pieces | None:
    """The boxes of a class, None when its filter has no equivalent in the filter language."""
    where = relational(spec.filter)
    if where is None:
        return None
    form = normal_form(bind(where, spec.context))
    exact = form.exact
    found: list[Mapping[str, Range]] = []
    for box in form.boxes:
        parts, whole = _split(box, form, MAX_PIECES - len(found))
        exact = exact and whole
        found.extend(parts)
    return Pieces(spec.id, tuple(found), exact)


def _split(box: Box, form: NormalForm, budget: int) -> tuple[list[Mapping[str, Range]], bool]:
    """A box as boxes of single ranges, and whether they say the same."""
    exact, choices = True, {}
    for name, domain in box.domains.items():
        term = form.attributes[name]
        if isinstance(term, ColumnRef) and can_index(domain.kind):
            choices[term.name] = _ranges(domain)
        else:
            exact = False
    while math.prod(len(ranges) for ranges in choices.values()) > max(1, budget):
        name = max(choices, key=lambda each: len(choices[each]))
        choices[name] = [_hull(choices[name])]
        exact = False
        if choices[name] == [(None, None)]:
            del choices[name]
    names = list(choices)
    return [dict(zip(names, ranges, strict=True)) for ranges in itertools.product(*choices.values())], exact


def _ranges(domain: Domain) -> list[Range]:
    space = space_of(domain.kind)
    assert space is not None
    found: list[Range] = []
    for low, high in intervals.ranges(domain.cuts):
        found.append((None if low == space.least else low, None if high is None or high == space.end else high))
    return [*found, NULL_ONLY] if domain.null else found


def _hull(ranges: Sequence[Range]) -> Range:
    """One range around all; with NULL among them there is none but everything."""
    if NULL_ONLY in ranges:
        return (None, None)
    return ranges[0][0], ranges[-1][1]


def texts_of(pieces: Iterable[Pieces], columns: Iterable[str]) -> dict[str, set[bytes]]:
    """Every string that ranges of the named columns end at."""
    found: dict[str, set[bytes]] = {name: set() for name in columns}
    for piece in pieces:
        for box in piece.boxes:
            for name, ends in box.items():
                if name in found and ends is not NULL_ONLY:
                    found[name].update(end.encode() for end in ends if end is not None)
    return found


def boxes_of(pieces: Sequence[Pieces], attributes: Sequence[Attribute], labels: Mapping[str, Labels]) -> Boxes:
    """All boxes as arrays of keys."""
    count = sum(len(piece.boxes) for piece in pieces)
    ids = np.repeat(np.array([piece.id for piece in pieces], np.uint32), [len(piece.boxes) for piece in pieces])
    found = Boxes.unbounded(ids, len(attributes))
    exact, nulls = found.exact, found.nulls
    places = {attribute.name: k for k, attribute in enumerate(attributes)}
    codebooks = {
        name: dict(zip((text.decode() for text in book.strings), book.labels.tolist(), strict=True))
        for name, book in labels.items()
    }
    row = 0
    for piece in pieces:
        for box in piece.boxes:
            for name, ends in box.items():
                k = places[name]
                nulls[row, k] = ONLY_NULLS if ends is NULL_ONLY else NO_NULLS
                if ends is not NULL_ONLY:
                    exact[row, k] = _keys(ends, codebooks.get(name))
            row += 1
    assert row == count
    assert not ((nulls == ALSO_NULLS) & (exact[:, :, 0] != LOWEST)).any()
    return Boxes(ids, exact, nulls)


def _keys(ends: Range, codebook: Mapping[str, int] | None) -> tuple[int, int]:
    """The closed range of keys of a range that holds its lower end and not its upper one."""
    low, high = ends
    if codebook is not None:
        low, high = (end if end is None else codebook[end] for end in ends)
    return LOWEST if low is None else low, HIGHEST if high is None else high - 1


def attributes_of(columns: Iterable[str], types: Mapping[str, Any]) -> tuple[Attribute, ...]:
    """Attributes by name; at least one, because an index has at least one."""
    return tuple(Attribute(name, types[name]) for name in sorted(columns))


def text_columns(attributes: Iterable[Attribute]) -> list[str]:
    """Names of the attributes whose keys are labels."""
    return [attribute.name for attribute in attributes if is_text(attribute.type)]

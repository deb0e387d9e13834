"""Classes whose rows lie in ranges of numbers, such as regions: their boxes, together with those of the filter beside.

A region is no filter of the language, but every row of it lies in a few boxes of numeric columns. With them the index
narrows a region as it narrows a filter; where the boxes say exactly what the region says, nothing is checked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headgate.filters.algebra.keys import key_of
from headgate.matching.compiled.pieces import MAX_PIECES, NULL_ONLY, Pieces, Range, pieces_of
from headgate.matching.index import Bounded, ClassSpec

_EXACT = 2.0**53


def class_pieces(spec: ClassSpec, types: Mapping[str, pa.DataType]) -> Pieces | None:
    """The boxes of a class over columns of these types, None when neither its filter nor its bounds give any."""
    if not isinstance(spec.filter, Bounded):
        return pieces_of(spec)
    inner = class_pieces(ClassSpec(spec.id, spec.filter.where, spec.context), types)
    found = inner if inner is not None else Pieces(spec.id, ({},), exact=False)
    bounds, exact = spec.filter.bounds(spec.context)
    keyed = []
    for bound in bounds:
        ranges = {name: _range(ends, types[name]) for name, ends in bound.items()}
        exact = exact and None not in ranges.values()
        keyed.append({name: ends for name, ends in ranges.items() if ends is not None})
    if len(found.boxes) * len(keyed) > MAX_PIECES:
        return Pieces(spec.id, found.boxes, exact=False)
    both = (_both(box, bound) for box in found.boxes for bound in keyed)
    return Pieces(spec.id, tuple(box for box in both if box is not None), found.exact and exact)


def _range(ends: tuple[float, float], kind: pa.DataType) -> Range | None:
    """The keys of a closed range of numbers, the upper one past its end; None where the type's keys are no numbers."""
    low, high = ends
    if pa.types.is_floating(kind):
        return key_of(low, pa.float64()), key_of(high, pa.float64()) + 1
    if pa.types.is_signed_integer(kind):
        # Beyond 2**53 doubles skip whole numbers, so such a bound is left open.
        return _whole(low, math.ceil, 0), _whole(high, math.floor, 1)
    return None


def _whole(end: float, towards: Callable[[float], int], more: int) -> int | None:
    return towards(end) + more if abs(end) < _EXACT else None


def _both(box: Mapping[str, Range], bound: Mapping[str, Range]) -> Mapping[str, Range] | None:
    """What two boxes have in common, None for nothing. A column in both is a number, and bounds have no nulls."""
    found: dict[str, Range] = dict(box)
    for name, ends in bound.items():
        known = found.get(name, (None, None))
        if known == NULL_ONLY:
            return None
        low, high = _most(max, known[0], ends[0]), _most(min, known[1], ends[1])
        if low is not None and high is not None and low >= high:
            return None
        found[name] = (low, high)
    return found


def _most(choose: Callable[..., Any], one: Any, other: Any) -> Any:
    given = [end for end in (one, other) if end is not None]
    return choose(given) if given else None

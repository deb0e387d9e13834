"""Comparison and three-valued logic.

As in Spark: NaN equals NaN and is greater than every other number, -0.0 equals 0.0, strings compare by their UTF-8
bytes, NULL compares to NULL except under `<=>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters.types import BOOL, is_float
from headgate.filters.vector import Mask, Numbers, Vector, in_arrow, truth, union

_ARROW = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
FEW = 4  # options that are compared one by one
_NUMPY = {"=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def compare(op: str, left: Vector, right: Vector) -> Vector:
    """`left op right` of two vectors of the same type."""
    if op == "<=>":
        return _null_safe(left, right)
    if in_arrow(left.type):
        return truth(_ARROW[op](left.values, right.values))
    values = _floats(op, left.values, right.values) if is_float(left.type) else _NUMPY[op](left.values, right.values)
    return Vector(BOOL, np.asarray(values, bool), union(left.null, right.null))


def _floats(op: str, left: Numbers, right: Numbers) -> Numbers:
    if op in ("=", "!="):
        equal: Numbers = (left == right) | (np.isnan(left) & np.isnan(right))
        return equal if op == "=" else ~equal
    if op in (">", "<="):
        left, right = right, left
    less = (left < right) | (np.isnan(right) & ~np.isnan(left))
    found: Numbers = less if op in ("<", ">") else ~less
    return found


def _null_safe(left: Vector, right: Vector) -> Vector:
    equal = compare("=", left, right)
    one, other = left.missing, right.missing
    if one is None and other is None:
        return equal
    one = np.array([False]) if one is None else one
    other = np.array([False]) if other is None else other
    return Vector(BOOL, (equal.values & ~one & ~other) | (one & other))


def contained(value: Vector, options: Sequence[Vector]) -> Vector:
    """`value IN (options)`: TRUE where one is equal, NULL where none is but a NULL stands in the list."""
    if in_arrow(value.type) and all(isinstance(option.values, pa.Scalar) for option in options):
        return _strings_contained(value, options)
    if len(options) > FEW and not in_arrow(value.type):
        found = _numbers_contained(value, options)
        if found is not None:
            return found
    return any_of([compare("=", value, option) for option in options])


def listed(value: Vector, known: Sequence[Any]) -> Vector | None:
    """`value IN (known)` for literals of the value's type; None where the literals have to be asked one by one."""
    present = [one for one in known if one is not None]
    if in_arrow(value.type):
        if isinstance(value.values, pa.Scalar):
            return None
        found = np.asarray(pc.is_in(value.values, pa.array(present, value.type)))
    elif value.values.dtype.hasobject:
        return None
    else:
        found = np.isin(value.values, np.array(present, value.values.dtype))
        if is_float(value.type) and any(one != one for one in present):
            found = found | np.isnan(value.values)
    null = value.missing
    return Vector(BOOL, found, union(null, ~found) if len(present) < len(known) else null)


def _numbers_contained(value: Vector, options: Sequence[Vector]) -> Vector | None:
    """Membership in a long list of constants by one sorted search; None where the list is no list of constants."""
    if value.values.dtype.hasobject or any(len(option.values) != 1 for option in options):
        return None
    absent = [option.null is not None and bool(option.null[0]) for option in options]
    known = np.array([option.values[0] for option, gone in zip(options, absent, strict=True) if not gone])
    found = np.isin(value.values, known)
    if is_float(value.type) and np.isnan(known).any():
        found = found | np.isnan(value.values)
    return Vector(BOOL, found, union(value.null, ~found) if any(absent) else value.null)


def _strings_contained(value: Vector, options: Sequence[Vector]) -> Vector:
    present = [option.values for option in options if option.values.is_valid]
    if isinstance(value.values, pa.Scalar):
        return any_of([compare("=", value, option) for option in options])
    found = np.asarray(pc.is_in(value.values, pa.array([option.as_py() for option in present], value.type)))
    null = value.missing
    if len(present) < len(options):
        null = union(null, ~found)
    return Vector(BOOL, found, null)


def negation(item: Vector) -> Vector:
    """`NOT item`."""
    return Vector(BOOL, ~item.values, item.null)


def _yes(item: Vector) -> Mask:
    found: Mask = item.values if item.null is None else item.values & ~item.null
    return found


def _no(item: Vector) -> Mask:
    found: Mask = ~item.values if item.null is None else ~item.values & ~item.null
    return found


def all_of(items: Sequence[Vector]) -> Vector:
    """AND: FALSE as soon as one item is FALSE, else NULL as soon as one is NULL."""
    yes = _yes(items[0])
    for item in items[1:]:
        yes = yes & _yes(item)
    if all(item.null is None for item in items):
        return Vector(BOOL, yes)
    no = _no(items[0])
    for item in items[1:]:
        no = no | _no(item)
    return Vector(BOOL, yes, ~(yes | no))


def any_of(items: Sequence[Vector]) -> Vector:
    """OR: TRUE as soon as one item is TRUE, else NULL as soon as one is NULL."""
    return negation(all_of([negation(item) for item in items]))

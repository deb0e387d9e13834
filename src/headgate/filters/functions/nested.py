"""Functions of arrays and maps, on offsets and flat values: no row is ever unpacked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.filters import build
from headgate.filters.errors import RefusedError
from headgate.filters.expr import Call, Expr
from headgate.filters.functions.base import Function, Resolved, count
from headgate.filters.kernels import arithmetic
from headgate.filters.kernels.compare import compare, contained, listed
from headgate.filters.types import BIGINT, BOOL, INT, NULL, is_float, is_integer, is_list, is_map, name_of, wider
from headgate.filters.vector import Mask, Numbers, Vector, constant, from_arrow, in_arrow, missing_value, union


def _flat(value: Vector) -> pa.Array:
    """The vector as an Arrow list or map array; a constant as one row."""
    return pa.array([value.values.as_py()], value.type) if isinstance(value.values, pa.Scalar) else value.values


def _offsets(array: pa.Array) -> Numbers:
    found: Numbers = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _rows(offsets: Numbers) -> Numbers:
    """The row of every entry between the first and the last offset."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _pick(values: pa.Array, positions: Numbers, valid: Mask, kind: pa.DataType, *, single: bool) -> Vector:
    """The flat values at those positions, NULL where not valid; `single` when the answer is a constant."""
    found = values.take(pa.array(np.where(valid, positions, 0), mask=~valid))
    return Vector(kind, found[0]) if single and in_arrow(kind) else from_arrow(found, kind)


def element(base: Vector, index: Vector, kind: pa.DataType, *, from_one: bool = False) -> Vector:
    """`array[index]`; from zero, or as `element_at` from one with negative ones from the end."""
    array = _flat(base)
    offsets = _offsets(array)
    length = np.diff(offsets)
    at = index.values
    valid = (at > -length - 1) & (at != 0) & (at <= length) if from_one else (at >= 0) & (at < length)
    if from_one:
        at = np.where(at > 0, at - 1, at + length)
    missing = union(base.missing, index.null)
    if missing is not None:
        valid = valid & ~missing
    single = isinstance(base.values, pa.Scalar) and len(index.values) == 1
    return _pick(array.values, offsets[:-1] + at, np.atleast_1d(valid), kind, single=single)


def map_value(base: Vector, key: Vector, kind: pa.DataType) -> Vector:
    """`map[key]`; NULL where the map has no such key."""
    array = _flat(base)
    offsets = _offsets(array)
    rows = _rows(offsets)
    keys = from_arrow(array.keys.slice(offsets[0], offsets[-1] - offsets[0]), key.type)
    single = isinstance(base.values, pa.Scalar)
    constant_key = isinstance(key.values, pa.Scalar) if in_arrow(key.type) else len(key.values) == 1
    if single and not constant_key:
        return _constant_map(array, key, kind)
    wanted = key if constant_key else _take(key, rows)
    equal = compare("=", keys, wanted)
    hits = np.flatnonzero(equal.values if equal.null is None else equal.values & ~equal.null)
    positions = np.full(len(offsets) - 1, -1, np.int64)
    positions[rows[hits]] = hits + offsets[0]
    missing = base.missing
    valid = positions >= 0 if missing is None else (positions >= 0) & ~missing
    return _pick(array.items, positions, valid, kind, single=single)


def _constant_map(array: pa.Array, key: Vector, kind: pa.DataType) -> Vector:
    """A column of keys looked up in a map of the context: one comparison per entry of the map."""
    positions = np.full(len(key.values), -1, np.int64)
    for entry, known in enumerate(array.keys.to_pylist()):
        equal = compare("=", key, constant(known, key.type))
        positions[equal.values if equal.null is None else equal.values & ~equal.null] = entry
    return _pick(array.items, positions, positions >= 0, kind, single=False)


def _take(value: Vector, rows: Numbers) -> Vector:
    if in_arrow(value.type):
        return Vector(value.type, value.values.take(pa.array(rows)))
    return Vector(value.type, value.values[rows], None if value.null is None else value.null[rows])


def _resolve_contains(args: tuple[Expr, ...]) -> Resolved:
    count(args, 2)
    array, value = args
    if not is_list(array.type):
        raise RefusedError(f"an array was expected, not {name_of(array.type)}")
    kind = wider(array.type.value_type, value.type)
    if kind is None or pa.types.is_nested(kind):
        raise RefusedError(f"an array of {name_of(array.type.value_type)} cannot contain {name_of(value.type)}")
    return (array, build.cast(value, kind)), BOOL


def _contains(call: Call, args: tuple[Vector, ...]) -> Vector:
    array, value = args
    if isinstance(array.values, pa.Scalar):
        return _constant_contains(array, value)
    inner = call.args[0].type.value_type
    offsets = _offsets(array.values)
    rows, size = _rows(offsets), len(offsets) - 1
    flat = array.values.values.slice(offsets[0], offsets[-1] - offsets[0])
    elements = from_arrow(flat, inner)
    if inner != value.type:
        elements = arithmetic.cast(elements, value.type)
    single = isinstance(value.values, pa.Scalar) if in_arrow(value.type) else len(value.values) == 1 != size
    equal = compare("=", elements, value if single else _take(value, rows))
    hits = equal.values if equal.null is None else equal.values & ~equal.null
    found = np.bincount(rows[hits], minlength=size) > 0
    null = union(array.missing, value.missing)
    absent = elements.missing
    if absent is not None:
        null = union(null, ~found & (np.bincount(rows[absent], minlength=size) > 0))
    return Vector(BOOL, found, null)


def _constant_contains(array: Vector, value: Vector) -> Vector:
    """A list of the context that is asked for a column's values: sorted membership, not one comparison per element."""
    if not array.values.is_valid:
        return missing_value(BOOL)
    flat = array.values.values
    if len(flat) == 0:
        return Vector(BOOL, np.zeros(1, bool), value.missing)
    inner = flat.type
    if wider(inner, value.type) != value.type:
        return missing_value(BOOL)
    if in_arrow(inner):
        known = flat.to_pylist()
        return listed(value, known) or contained(value, [constant(one, inner) for one in known])
    elements = from_arrow(flat, inner)
    if inner != value.type:
        elements = arithmetic.cast(elements, value.type)
    present = elements.values if elements.null is None else elements.values[~elements.null]
    if present.dtype == object or value.values.dtype == object:
        found = np.zeros(len(value.values), bool)
        for one in present:
            found |= value.values == one
    else:
        found = np.isin(value.values, present)
    if is_float(value.type) and np.isnan(present).any():
        found = found | np.isnan(value.values)
    null = value.null
    if elements.null is not None and elements.null.any():
        null = union(null, ~found)
    return Vector(BOOL, found, null)


def _resolve_size(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    if not (is_list(args[0].type) or is_map(args[0].type)):
        raise RefusedError(f"an array or a map was expected, not {name_of(args[0].type)}")
    return args, INT


def _size(_call: Call, args: tuple[Vector, ...]) -> Vector:
    return Vector(INT, np.diff(_offsets(_flat(args[0]))).astype(np.int32), args[0].missing)


def _resolve_element(args: tuple[Expr, ...]) -> Resolved:
    count(args, 2)
    base, key = args
    if is_list(base.type):
        if not is_integer(key.type) and key.type != NULL:
            raise RefusedError(f"an array is indexed by a whole number, not {name_of(key.type)}")
        return (base, build.cast(key, BIGINT)), base.type.value_type
    if is_map(base.type):
        if wider(base.type.key_type, key.type) != base.type.key_type:
            raise RefusedError(f"the keys are {name_of(base.type.key_type)}, not {name_of(key.type)}")
        return (base, build.cast(key, base.type.key_type)), base.type.item_type
    raise RefusedError(f"an array or a map was expected, not {name_of(base.type)}")


def _element(call: Call, args: tuple[Vector, ...]) -> Vector:
    if is_map(args[0].type):
        return map_value(args[0], args[1], call.type)
    return element(args[0], args[1], call.type, from_one=True)


FUNCTIONS = (
    Function(
        ("array_contains",),
        "array_contains(array, value)",
        "Whether the array has the value; NULL when only a NULL element could be it.",
        _resolve_contains,
        _contains,
    ),
    Function(("size", "cardinality"), "size(array or map)", "The number of elements.", _resolve_size, _size),
    Function(
        ("element_at",),
        "element_at(array or map, index or key)",
        "An element counted from 1 (negative: from the end), or a map's value; NULL where there is none.",
        _resolve_element,
        _element,
    ),
)

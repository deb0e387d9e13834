"""abs, round, floor, ceil, sqrt, isnan."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa

from headgate.filters import build
from headgate.filters.errors import RefusedError
from headgate.filters.expr import Call, Expr
from headgate.filters.functions.base import Function, Resolved, count, expect, literal_value, whole_literal
from headgate.filters.kernels import arithmetic, decimals
from headgate.filters.types import BIGINT, BOOL, DOUBLE, FLOAT, MAX_PRECISION, NULL, is_decimal, is_float, is_number
from headgate.filters.vector import Numbers, Vector, dtype_of, union

_EXACT = 2.0**48  # above, doubles stand too thinly to tell neighbouring decimals of one more digit apart
_MAX_SCALE = 20
_WIDE = Context(prec=400)


def _number(arg: Expr) -> Expr:
    found = expect(arg, "a number", is_number)
    return build.cast(found, DOUBLE) if found.type == NULL else found


def _resolve_abs(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    arg = _number(args[0])
    return (arg,), arg.type


def _resolve_round(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1, 2)
    arg = _number(args[0])
    scale = whole_literal(args[1], "the scale of round") if len(args) > 1 else 0
    if abs(scale) > _MAX_SCALE:
        raise RefusedError(f"the scale {scale} is not within {-_MAX_SCALE} to {_MAX_SCALE}")
    kind = arg.type
    if is_decimal(kind):
        digits = kind.precision - kind.scale + 1
        if scale < 0:
            kind = pa.decimal128(min(max(digits, -scale + 1), MAX_PRECISION), 0)
        else:
            kind = pa.decimal128(min(digits + min(scale, kind.scale), MAX_PRECISION), min(scale, kind.scale))
    return (arg, *args[1:]), kind


def _round(call: Call, args: tuple[Vector, ...]) -> Vector:
    value = args[0]
    scale = literal_value(call.args[1]) if len(args) > 1 else 0
    if is_decimal(value.type):
        return decimals.rounded(value, scale, call.type)
    if is_float(value.type):
        found = round_doubles(value.values.astype(np.float64), scale)
        return Vector(value.type, found.astype(dtype_of(value.type)), value.null)
    if scale >= 0:
        return value
    step = 10**-scale
    if step > np.iinfo(np.int64).max:
        return Vector(value.type, np.zeros_like(value.values), value.null)
    values = value.values.astype(np.int64)
    rest = np.fmod(values, step)
    base = values - rest
    away = np.where(2 * np.abs(rest) >= step, np.sign(values) * step, 0) if step < 2**62 else np.zeros_like(values)
    return arithmetic.checked(value.type, *arithmetic.add(base, away), value.null)


def round_doubles(values: Numbers, scale: int) -> Numbers:
    """Doubles rounded half away from zero in their shortest decimal form, as Spark does.

    2.675 is below 2.675 in binary, yet rounds to 2.68 at two digits: the tie is looked for among decimals. A double
    ties when it is the double nearest to the decimal tie, which one division tells exactly while the scaled value has
    less than 48 bits. The few values beyond that are rounded one by one.

    >>> round_doubles(np.array([2.675, -2.5, 2.4]), 2).tolist()
    [2.68, -2.5, 2.4]
    """
    magnitude = np.abs(values)
    power = 10.0 ** abs(scale)
    scaled = magnitude * power if scale >= 0 else magnitude / power
    fine = scaled < _EXACT

    def at(count: Numbers) -> Numbers:
        found: Numbers = count / power if scale >= 0 else count * power
        return found

    low = np.floor(np.where(fine, scaled, 0.0))
    low = np.where(at(low) > magnitude, low - 1, low)
    low = np.where(at(low + 1) <= magnitude, low + 1, low)
    up = at(low + 0.5) <= magnitude
    found = np.where(fine, np.copysign(at(low + up), values), values)
    rest = np.flatnonzero(~fine & np.isfinite(values) & ((values != np.floor(values)) | (scale < 0)))
    if rest.size:
        unit = Decimal(1).scaleb(-scale)
        found = np.array(found)
        found[rest] = [float(Decimal(repr(one)).quantize(unit, ROUND_HALF_UP, _WIDE)) for one in values[rest].tolist()]
    return np.asarray(found)


def _resolve_whole(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    arg = _number(args[0])
    if is_decimal(arg.type):
        whole = arg.type.precision - arg.type.scale
        return (arg,), pa.decimal128(min(whole + (arg.type.scale > 0), MAX_PRECISION) or 1, 0)
    return (build.cast(arg, DOUBLE) if arg.type == FLOAT else arg,), BIGINT


def _whole(value: Vector, kind: pa.DataType, *, up: bool) -> Vector:
    if is_decimal(value.type):
        return decimals.whole(value, kind, up=up)
    if not is_float(value.type):
        return Vector(BIGINT, value.values.astype(np.int64), value.null)
    found = np.ceil(value.values) if up else np.floor(value.values)
    beyond = (found >= 2.0**63) | (found < -(2.0**63))
    values = np.where(beyond | np.isnan(found), 0.0, found).astype(np.int64)
    return Vector(BIGINT, values, union(value.null, beyond) if beyond.any() else value.null)


def _resolve_double(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    return (build.cast(_number(args[0]), DOUBLE),), DOUBLE


def _resolve_isnan(args: tuple[Expr, ...]) -> Resolved:
    arg, _ = _resolve_double(args)
    return arg, BOOL


def _isnan(_call: Call, args: tuple[Vector, ...]) -> Vector:
    found = np.isnan(args[0].values)
    return Vector(BOOL, found if args[0].null is None else found & ~args[0].null)


FUNCTIONS = (
    Function(
        ("abs",), "abs(number)", "Distance from zero.", _resolve_abs, lambda _, args: arithmetic.absolute(args[0])
    ),
    Function(("round",), "round(number[, digits])", "Rounded half away from zero.", _resolve_round, _round),
    Function(
        ("floor",),
        "floor(number)",
        "The largest whole number that is not greater.",
        _resolve_whole,
        lambda call, args: _whole(args[0], call.type, up=False),
    ),
    Function(
        ("ceil", "ceiling"),
        "ceil(number)",
        "The smallest whole number that is not less.",
        _resolve_whole,
        lambda call, args: _whole(args[0], call.type, up=True),
    ),
    Function(
        ("sqrt",),
        "sqrt(number)",
        "Square root; NaN of a negative number.",
        _resolve_double,
        lambda _, args: Vector(DOUBLE, np.sqrt(args[0].values), args[0].null),
    ),
    Function(("isnan",), "isnan(number)", "Whether the value is NaN; false for NULL.", _resolve_isnan, _isnan),
)

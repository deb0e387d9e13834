"""coalesce, ifnull, if, isnull, isnotnull."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters import build
from headgate.filters.errors import RefusedError
from headgate.filters.expr import Call, Expr
from headgate.filters.functions.base import Function, Resolved, count
from headgate.filters.types import BOOL, is_nested
from headgate.filters.vector import Mask, Vector, in_arrow


def _scalars(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    found = build.common(args)
    if is_nested(found[0].type):
        raise RefusedError("arrays, maps and structs cannot be chosen between", "choose between their elements")
    return found


def choose(condition: Mask, yes: Vector, no: Vector) -> Vector:
    """`yes` where the condition holds, else `no`."""
    kind = yes.type
    if in_arrow(kind):
        if len(condition) == 1:
            return yes if condition[0] else no
        return Vector(kind, pc.if_else(pa.array(condition), yes.values, no.values))
    values = np.where(condition, yes.values, no.values)
    if yes.null is None and no.null is None:
        return Vector(kind, values)
    absent = np.array([False])
    null = np.where(condition, absent if yes.null is None else yes.null, absent if no.null is None else no.null)
    return Vector(kind, values, null)


def _resolve_coalesce(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1, 64)
    found = _scalars(args)
    return found, found[0].type


def _coalesce(_call: Call, args: tuple[Vector, ...]) -> Vector:
    found = args[-1]
    for arg in reversed(args[:-1]):
        missing = arg.missing
        found = arg if missing is None else choose(~missing, arg, found)
    return found


def _resolve_if(args: tuple[Expr, ...]) -> Resolved:
    count(args, 3)
    found = _scalars(args[1:])
    return (build.boolean(args[0], "if"), *found), found[0].type


def _if(_call: Call, args: tuple[Vector, ...]) -> Vector:
    condition = args[0].values if args[0].null is None else args[0].values & ~args[0].null
    return choose(condition, args[1], args[2])


def _resolve_isnull(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    return args, BOOL


def is_null(value: Vector) -> Vector:
    """Whether the value is missing; never NULL itself."""
    missing = value.missing
    if missing is not None:
        return Vector(BOOL, missing)
    shape = 1 if isinstance(value.values, pa.Scalar) else len(value.values)
    return Vector(BOOL, np.zeros(shape, bool))


def _isnotnull(_call: Call, args: tuple[Vector, ...]) -> Vector:
    return Vector(BOOL, ~is_null(args[0]).values)


FUNCTIONS = (
    Function(("coalesce",), "coalesce(value, ...)", "The first that is not NULL.", _resolve_coalesce, _coalesce),
    Function(
        ("ifnull", "nvl"), "ifnull(value, other)", "The value, or the other if NULL.", _resolve_coalesce, _coalesce
    ),
    Function(("if",), "if(condition, value, other)", "One value or the other.", _resolve_if, _if),
    Function(("isnull",), "isnull(value)", "Whether it is NULL.", _resolve_isnull, lambda _, args: is_null(args[0])),
    Function(("isnotnull",), "isnotnull(value)", "Whether it is not NULL.", _resolve_isnull, _isnotnull),
)

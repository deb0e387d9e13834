"""A filter with a subscriber's values in place of its `$names`: what a delivery class is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.filters import build
from headgate.filters.algebra.atoms import is_constant
from headgate.filters.evaluate import Scope, as_python, evaluate
from headgate.filters.expr import FALSE, Call, Cast, Element, Expr, Literal, Parameter, StructField, operand_names, walk
from headgate.filters.filter import Filter
from headgate.filters.types import DOUBLE, FLOAT, STRING, is_nested

MAX_BOUND: Final = 8_192
"""Values that may take the place of a filter's `$names`: twice the most that one context holds."""
_NO_ROWS = pa.RecordBatch.from_arrays([], names=[])


def bind(of: Filter, context: Mapping[str, Any]) -> Filter:
    """The filter with context values as literals.

    `array_contains($list, column)` becomes IN. A value that has no literal (NaN, an infinity, a list used otherwise)
    stays a parameter, so the bound filter's `parameters` say what it still needs; so do all where the filter would grow
    by more than `MAX_BOUND` values. Values keep the types of the context,
    which literals of the same text need not have: a bound filter is for computing, its text for reading.

    >>> from headgate.filters import parse_filter
    >>> from headgate.model import Schema
    >>> near = parse_filter("x < $limit", Schema.of({"x": "int"}), {"limit": pa.int64()})
    >>> bind(near, {"limit": 5}).text
    'x < 5L'
    """
    return Filter.of(_bind(of.expr, context)) if of.parameters and bound_size(of, context) <= MAX_BOUND else of


def bound_size(of: Filter, context: Mapping[str, Any]) -> int:
    """How much the values of a context add to a filter that refers to them, told before they are put in.

    A value counts for each place that refers to it: a list by its length, a text by its characters over 16.
    """
    sizes = {name: _size(context.get(name)) for name in of.parameters}
    return sum(sizes[node.name] for node in walk(of.expr) if isinstance(node, Parameter))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return 1 + len(value) // 16
    return sum(_size(one) for one in value) if isinstance(value, list | tuple) else 1


def _bind(node: Expr, context: Mapping[str, Any]) -> Expr:
    if isinstance(node, Parameter | StructField | Element) and _from_context(node):
        return _literal(node, context)
    if isinstance(node, Call) and node.name == "array_contains" and isinstance(node.args[0], Parameter):
        return _membership(node, context)
    changes: dict[str, Any] = {}
    for name in operand_names(node):
        found = getattr(node, name)
        if isinstance(found, Expr):
            changes[name] = _bind(found, context)
        elif isinstance(found, tuple):
            changes[name] = tuple(_bind(each, context) for each in found)
    return replace(node, **changes) if changes else node


def _from_context(node: Expr) -> bool:
    """Whether the expression is a context value or a constant part of one."""
    below = list(walk(node))
    return any(isinstance(each, Parameter) for each in below) and all(
        isinstance(each, Parameter | StructField | Element | Literal | Cast) for each in below
    )


def _literal(node: Expr, context: Mapping[str, Any]) -> Expr:
    if is_nested(node.type):
        return node
    with np.errstate(all="ignore"):
        value = as_python(evaluate(node, Scope(_NO_ROWS, context)))
    if node.type in (DOUBLE, FLOAT) and value is not None and not np.isfinite(value):
        return node
    return Literal(node.type, value)


def _membership(node: Call, context: Mapping[str, Any]) -> Expr:
    value = _bind(node.args[1], context)
    array, kind = node.args[0], node.args[1].type
    items = context.get(array.name) if isinstance(array, Parameter) else None
    if items is None or is_constant(value):
        return replace(node, args=(array, value))
    literals = []
    inner = array.type.value_type
    for item in items:
        if inner == STRING == kind and type(item) is str:
            literals.append(build.cast(Literal(STRING, item), kind))
            continue
        with np.errstate(all="ignore"):
            found = _literal(Parameter(kind if pa.types.is_null(inner) else inner, "item"), {"item": item})
        if not isinstance(found, Literal):
            return replace(node, args=(array, value))
        literals.append(build.cast(found, kind))
    return build.membership(value, literals) if literals else FALSE

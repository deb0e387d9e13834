"""Values of an expression tree over a batch of rows: one dispatch per node, every operation over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.filters.expr import (
    And,
    Arithmetic,
    Call,
    Cast,
    ColumnRef,
    Compare,
    Element,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Parameter,
    Rlike,
    StructField,
)
from headgate.filters.functions import FUNCTIONS
from headgate.filters.functions.general import is_null
from headgate.filters.functions.nested import element, map_value
from headgate.filters.kernels import arithmetic, compare, patterns
from headgate.filters.types import is_list
from headgate.filters.vector import Vector, constant, from_arrow, from_python, in_arrow


@dataclass(slots=True)
class Scope:
    """What names mean during one evaluation: a batch, context values, and columns that were already converted."""

    batch: pa.RecordBatch
    context: Mapping[str, Any]
    columns: dict[str, Vector] = field(default_factory=dict)


def evaluate(node: Expr, scope: Scope) -> Vector:
    """The node's value for every row of the batch, or one value if it is a constant."""
    return _KINDS[type(node)](node, scope)


def _column(node: ColumnRef, scope: Scope) -> Vector:
    found = scope.columns.get(node.name)
    if found is None:
        found = scope.columns[node.name] = from_arrow(scope.batch.column(node.name), node.kind)
    return found


def _parameter(node: Parameter, scope: Scope) -> Vector:
    value = scope.context.get(node.name)
    if node.kind != _ANY_LIST or not value:
        return from_python(value, node.kind)
    try:
        return Vector(node.kind, pa.scalar(value, from_pandas=False))
    except (pa.ArrowException, TypeError, ValueError):
        return from_python(None, node.kind)


_ANY_LIST = pa.list_(pa.field("element", pa.null()))


def _field(node: StructField, scope: Scope) -> Vector:
    base = evaluate(node.base, scope)
    if isinstance(base.values, pa.Scalar):
        value = base.values.as_py()
        return from_python(None if value is None else value[node.name], node.kind)
    index = base.type.get_field_index(node.name)
    return from_arrow(base.values.flatten()[index], node.kind)


def _item(node: Element, scope: Scope) -> Vector:
    base, key = evaluate(node.base, scope), evaluate(node.key, scope)
    return element(base, key, node.kind) if is_list(base.type) else map_value(base, key, node.kind)


def _in(node: In, scope: Scope) -> Vector:
    value = evaluate(node.value, scope)
    if len(node.options) > compare.FEW and all(isinstance(option, Literal) for option in node.options):
        known = [option.value for option in node.options if isinstance(option, Literal)]
        found = compare.listed(value, known)
        if found is not None:
            return found
    options = [evaluate(option, scope) for option in node.options]
    return compare.contained(value, options)


_KINDS: dict[type[Expr], Callable[[Any, Scope], Vector]] = {
    Literal: lambda node, _: constant(node.value, node.kind),
    ColumnRef: _column,
    Parameter: _parameter,
    StructField: _field,
    Element: _item,
    Cast: lambda node, scope: arithmetic.cast(evaluate(node.value, scope), node.kind),
    Arithmetic: lambda node, scope: arithmetic.arithmetic(
        node.op, evaluate(node.left, scope), evaluate(node.right, scope), node.kind
    ),
    Negate: lambda node, scope: arithmetic.negate(evaluate(node.value, scope)),
    Call: lambda node, scope: FUNCTIONS[node.name].kernel(node, tuple(evaluate(arg, scope) for arg in node.args)),
    Compare: lambda node, scope: compare.compare(node.op, evaluate(node.left, scope), evaluate(node.right, scope)),
    In: _in,
    Like: lambda node, scope: patterns.like(evaluate(node.value, scope), node.pattern, node.escape),
    Rlike: lambda node, scope: patterns.rlike(evaluate(node.value, scope), node.pattern),
    IsNull: lambda node, scope: is_null(evaluate(node.value, scope)),
    Not: lambda node, scope: compare.negation(evaluate(node.item, scope)),
    And: lambda node, scope: compare.all_of([evaluate(item, scope) for item in node.items]),
    Or: lambda node, scope: compare.any_of([evaluate(item, scope) for item in node.items]),
}


def constant_value(node: Expr) -> Vector:
    """The value of an expression without columns and context values."""
    with np.errstate(all="ignore"):
        return evaluate(node, Scope(_NOTHING, {}))


def literal_form(node: Expr) -> Any:
    """The value of an expression without columns and context values, in the form that literals have; None for NULL."""
    return node.value if isinstance(node, Literal) else as_python(constant_value(node))


_NOTHING = pa.RecordBatch.from_arrays([], names=[])


def as_python(vector: Vector) -> Any:
    """A constant vector as a Python value in the form that literals have; None for NULL."""
    if in_arrow(vector.type):
        return vector.values.as_py()
    if vector.null is not None and vector.null[0]:
        return None
    value = vector.values[0]
    return value.item() if isinstance(value, np.generic) else value

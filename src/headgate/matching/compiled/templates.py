"""Many classes of one filter at once: their boxes from a table of context values, without a Python object per class.

A filter that only compares columns with expressions of `$names` (`x >= $low AND x < $low + 5`) is a template: one box a
class, whose bounds are the same expressions of each class's values. They are evaluated over all classes in one pass by
the filter language itself, so bulk binding gives the ranges that binding one by one gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters.algebra.keys import order_keys
from headgate.filters.evaluate import Scope, evaluate
from headgate.filters.expr import And, ColumnRef, Compare, Expr, Parameter, walk
from headgate.filters.profiles.base import relational
from headgate.filters.types import DATE, DOUBLE, TIMESTAMP, is_integer
from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.coding import HIGHEST, LOWEST, NO_NULLS

_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LOWER, _UPPER = {"=": 0, ">=": 0, ">": 1}, {"=": 0, "<=": 0, "<": -1}


@dataclass(frozen=True, slots=True)
class RangeTemplate:
    """A conjunction of comparisons of columns with expressions of the context; `types` are those of its `$names`."""

    bounds: tuple[tuple[str, str, Expr], ...]
    types: Mapping[str, pa.DataType]

    @classmethod
    def of(cls, where: object) -> RangeTemplate | None:
        """The template of a filter, None when it is anything else.

        Columns are doubles, whole numbers, dates or timestamps, compared in their own type: where Spark would convert
        the column, cuts between its values depend on each constant, and classes are compiled one by one.
        """
        found = relational(where)
        if found is None or not found.parameters:
            return None
        bounds = []
        for item in found.expr.items if isinstance(found.expr, And) else (found.expr,):
            bound = _bound(item)
            if bound is None:
                return None
            bounds.append(bound)
        types = {node.name: node.kind for node in walk(found.expr) if isinstance(node, Parameter)}
        if any(pa.types.is_nested(kind) or pa.types.is_null(kind) for kind in types.values()):
            return None
        return cls(tuple(bounds), types)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it compares."""
        return frozenset(name for name, _, _ in self.bounds)

    def table(self, contexts: Sequence[Mapping[str, Any]]) -> pa.RecordBatch | None:
        """Context values as columns; None when one has not the type that the filter was compiled for."""
        columns = []
        for name, kind in self.types.items():
            values = [context.get(name) for context in contexts]
            try:
                columns.append(pa.array(values, kind))
            except (pa.ArrowException, TypeError, ValueError):
                return None
        return pa.RecordBatch.from_arrays(columns, names=list(self.types))

    def boxes(self, ids: npt.NDArray[np.uint32], table: pa.RecordBatch, attributes: Sequence[Attribute]) -> Boxes:
        """One box a class, over attributes that include the template's columns; a class that nothing matches has none.

        A bound that is NULL makes its comparison NULL, which is never true.
        """
        found = Boxes.unbounded(ids, len(attributes))
        exact, nulls = found.exact, found.nulls
        alive = np.ones(len(ids), bool)
        places = {attribute.name: k for k, attribute in enumerate(attributes)}
        scope = Scope(table, {})
        for name, op, value in self.bounds:
            k = places[name]
            nulls[:, k] = NO_NULLS
            with np.errstate(all="ignore"):
                vector = evaluate(value, scope)
            keys = np.broadcast_to(order_keys(vector), len(ids))
            if vector.missing is not None:
                alive &= ~np.broadcast_to(vector.missing, len(ids))
            if op in _LOWER:
                alive &= keys <= HIGHEST - _LOWER[op]
                exact[:, k, 0] = np.maximum(exact[:, k, 0], keys + _LOWER[op])
            if op in _UPPER:
                alive &= keys >= LOWEST - _UPPER[op]
                exact[:, k, 1] = np.minimum(exact[:, k, 1], keys + _UPPER[op])
        alive &= (exact[:, :, 0] <= exact[:, :, 1]).all(axis=1)
        return Boxes(ids[alive], exact[alive], nulls[alive])


def _bound(item: Expr) -> tuple[str, str, Expr] | None:
    """The column, operator and expression of a comparison, with the column on the left."""
    if not isinstance(item, Compare) or item.op not in _FLIPPED:
        return None
    left, op, right = item.left, item.op, item.right
    if not isinstance(left, ColumnRef):
        left, op, right = right, _FLIPPED[op], left
    if not isinstance(left, ColumnRef) or not (left.kind in (DOUBLE, DATE, TIMESTAMP) or is_integer(left.kind)):
        return None
    if right.type != left.kind or any(isinstance(node, ColumnRef) for node in walk(right)):
        return None
    return left.name, op, _as_columns(right)


def _as_columns(node: Expr) -> Expr:
    """The expression with context values read from a table's columns."""
    if isinstance(node, Parameter):
        return ColumnRef(node.kind, node.name)
    changes: dict[str, Any] = {}
    for field in fields(node):
        found = getattr(node, field.name)
        if isinstance(found, Expr):
            changes[field.name] = _as_columns(found)
        elif isinstance(found, tuple):
            changes[field.name] = tuple(_as_columns(each) for each in found)
    return replace(node, **changes) if changes else node

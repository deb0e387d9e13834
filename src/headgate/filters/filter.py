"""A parsed filter, and how one is made and used."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.filters.errors import FilterError
from headgate.filters.evaluate import Scope, evaluate
from headgate.filters.expr import ColumnRef, Expr, Parameter, walk
from headgate.filters.limits import DEFAULT_LIMITS, Limits, check_context, check_limits
from headgate.filters.parser import Parser
from headgate.filters.render import render
from headgate.filters.types import BIGINT, BOOL, DATE, DOUBLE, MAX_PRECISION, NULL, STRING, TIMESTAMP, wider
from headgate.filters.vector import Mask, is_true
from headgate.model import Schema

Places: TypeAlias = Mapping[int, tuple[Expr, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A condition on the rows of a stream.

    Equal filters have the same tree; the hash is that of the canonical text. Filters pickle, and evaluating one needs
    nothing but the rows.
    """

    expr: Expr
    text: str
    columns: frozenset[str]
    parameters: frozenset[str]

    @classmethod
    def of(cls, expr: Expr) -> Filter:
        """The filter of a tree that `build` made."""
        named = [node for node in walk(expr) if isinstance(node, ColumnRef | Parameter)]
        columns = frozenset(node.name for node in named if isinstance(node, ColumnRef))
        parameters = frozenset(node.name for node in named if isinstance(node, Parameter))
        return cls(expr, render(expr), columns, parameters)

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any] | None = None) -> Mask:
        """One boolean per row: True only where the condition is TRUE.

        A context value that is missing or does not fit its type is NULL.

        >>> heat = parse_filter("t > 21.5", Schema.of({"t": "double"}))
        >>> heat.evaluate(pa.record_batch({"t": [20.0, 22.0, None]})).tolist()
        [False, True, False]
        """
        with np.errstate(all="ignore"):
            found = evaluate(self.expr, Scope(batch, context or {}))
        return is_true(found, batch.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.text == other.text and self.expr == other.expr

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


def parse_filter(
    text: str,
    schema: Schema,
    context: Mapping[str, pa.DataType] | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    row_us: float = math.inf,
) -> Filter:
    """The filter that a text means over a stream's schema; `FilterError` says what is wrong with it and where.

    `context` gives the types of the subscriber's values that `$name` may refer to, `row_us` what evaluating the filter
    may cost for each row.

    >>> parse_filter("T between 1 and 2 or t is null", Schema.of({"t": "double"})).text
    't >= 1 AND t <= 2 OR t IS NULL'
    """
    return Filter.of(Parser(check_limits(text, limits), schema, context or {}, limits, row_us).parse())


def parse_placed(
    text: str, schema: Schema, context: Mapping[str, pa.DataType] | None = None, row_us: float = math.inf
) -> tuple[Filter, Places]:
    """As `parse_filter`, with the filter's predicates by `id` and where they start, for those who have to name one."""
    parser = Parser(check_limits(text), schema, context or {}, row_us=row_us)
    return Filter.of(parser.parse()), parser.places


def context_types(values: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The types of a subscriber's context values.

    Whole numbers are bigint, other numbers double, texts string, and so on; a list takes the narrowest type that holds
    its elements (an empty one takes whatever comes later), a mapping becomes a struct. A position is a
    list of two numbers or a struct.

    >>> types = context_types({"limit": 21.5, "watch": ["a", "b"]})
    >>> str(types["limit"]), str(types["watch"])
    ('double', 'list<element: string>')
    """
    check_context(values)
    return {name: _type_of(value, name) for name, value in values.items()}


_SIMPLE: tuple[tuple[type, pa.DataType], ...] = (
    (bool, BOOL),
    (int, BIGINT),
    (float, DOUBLE),
    (str, STRING),
    (dt.datetime, TIMESTAMP),
    (dt.date, DATE),
)


_PLAIN = frozenset((bool, int, float, str, dt.datetime, dt.date))


def _type_of(value: Any, name: str) -> pa.DataType:
    if value is None:
        return NULL
    for python, kind in _SIMPLE:
        if isinstance(value, python):
            return kind
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        return pa.decimal128(min(MAX_PRECISION, max(len(digits), scale, 1)), min(scale, MAX_PRECISION))
    if isinstance(value, Mapping):
        return pa.struct([pa.field(str(key), _type_of(inner, f"{name}.{key}")) for key, inner in value.items()])
    if isinstance(value, list | tuple | np.ndarray):
        kind, before = NULL, None
        for inner in value if not isinstance(value, np.ndarray) else value.tolist():
            if type(inner) is before:  # as the one before it: most lists have one type of plain values
                continue
            before = type(inner) if type(inner) in _PLAIN else None
            found = wider(kind, _type_of(inner, name))
            if found is None:
                raise FilterError(f"the context value {name!r} mixes types", hint="give a list of one kind of value")
            kind = found
        return pa.list_(pa.field("element", kind))
    raise FilterError(
        f"the context value {name!r} is a {type(value).__name__}",
        hint="a number, a string, a boolean, a timestamp, a list, or a mapping was expected",
    )

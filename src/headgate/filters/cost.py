"""What a filter costs, told from its tree before the work is done.

Two things are estimated. The *form* is an upper bound on the boxes and cuts that normalising makes: `algebra.normal`
stops multiplying at the same bounds, so that no filter gets past it. The *evaluation* is the time for a batch and for
each of its rows, by weights that were measured for each kind of node (`headgate bench filters` measures them again).
Texts count as 32 characters; a stream with longer ones takes longer in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from headgate.filters.errors import FilterError, shortened
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
    Like,
    Literal,
    Not,
    Or,
    Parameter,
    Rlike,
    StructField,
    children,
    walk,
)
from headgate.filters.kernels.patterns import ANY, ONE, like_pieces, like_size, regex_size
from headgate.filters.render import render
from headgate.filters.types import STRING, YEAR_MONTH, is_decimal
from headgate.filters.vector import NARROW_DIGITS

BATCH_ROWS: Final = 10_000
"""Rows of the batch that costs are told for."""
ROW_US: Final = 20.0
"""What evaluating a filter may cost for each row unless the deployment says otherwise: 300 alternatives of two
comparisons cost 4, a regular expression 0.1. A stream of 10,000 rows a second spends a fifth of a core on one filter at
the limit."""
ROW_HINT: Final = "use IN for alternatives of one column, fewer patterns, or let an operator raise filter_row_cost"
MAX_BOXES: Final = 64
"""Boxes of a normal form."""
MAX_CUTS: Final = 16_384
"""Cuts of all boxes of a conjunction of alternatives: comparing 64 boxes with each other takes about 0.1 s then."""

_TEXT_CHARACTERS = 32
_SEARCH_NS = 2.5  # for each character that a search or a regular expression goes over
_COPY_NS = 0.5  # for each character of a text that is made
_COMPILE_US = 0.5  # for each instruction of a pattern, once a batch
_ATOM_CUTS = 6  # most cuts of a predicate that is no list


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Time for a batch and for each of its rows."""

    batch_us: float
    row_ns: float

    @property
    def row_us(self) -> float:
        """Microseconds for each row in a batch of `BATCH_ROWS`."""
        return self.row_ns / 1e3 + self.batch_us / BATCH_ROWS


@dataclass(frozen=True, slots=True)
class FormSize:
    """The most boxes, and the most cuts of all of them, that a normal form can have."""

    boxes: int
    cuts: int


@dataclass(frozen=True, slots=True)
class FilterCost:
    """What normalising and evaluating a filter costs."""

    nodes: int
    form: FormSize
    evaluation: Evaluation

    @property
    def row_us(self) -> float:
        """Microseconds for each row in a batch of `BATCH_ROWS`."""
        return self.evaluation.row_us

    def document(self) -> dict[str, float]:
        """The figures for people and programs."""
        return {
            "nodes": self.nodes,
            "boxes_at_most": self.form.boxes,
            "cuts_at_most": self.form.cuts,
            "batch_us": round(self.evaluation.batch_us, 1),
            "row_us": round(self.row_us, 5),
        }


def filter_cost(expr: Expr, context: Mapping[str, Any] | None = None) -> FilterCost:
    """The cost of a tree; `context` tells how long the lists are that it refers to.

    >>> from headgate.filters import parse_filter
    >>> from headgate.model import Schema
    >>> filter_cost(parse_filter("n IN (1, 2, 3) OR n > 7", Schema.of({"n": "int"})).expr).form
    FormSize(boxes=2, cuts=13)
    """
    return FilterCost(sum(1 for _ in walk(expr)), form_size(expr), evaluation(expr, context))


def check_row_cost(
    cost: Evaluation,
    limit_us: float,
    text: str,
    places: Mapping[int, tuple[Expr, int]] = MappingProxyType({}),
    context: Mapping[str, Any] | None = None,
) -> None:
    """Refuse a filter whose evaluation costs too much; `places` has its predicates by `id`, and where they start."""
    if cost.row_us <= limit_us:
        return
    costs = [(evaluation(node, context, places).row_us, start, node) for node, start in places.values()]
    worst, start, node = max(costs, key=lambda each: each[:2], default=(cost.row_us, 0, None))
    part = "" if node is None else f", {worst:.3g} us of them for {shortened(render(node), 80)!r}"
    raise FilterError(
        f"evaluating the filter takes about {cost.row_us:.3g} us a row, at most {limit_us:.3g} are accepted{part}",
        text,
        start,
        hint=ROW_HINT,
    )


# The form.


def form_size(node: Expr, *, want: bool = True, limit: int = MAX_BOXES) -> FormSize:
    """The most that the normal form of a tree can have, computed without making it."""
    while isinstance(node, Not):
        node, want = node.item, not want
    if not isinstance(node, And | Or):
        return FormSize(1, 2 * len(node.options) + 1 if isinstance(node, In) else _ATOM_CUTS)
    parts = [form_size(item, want=want, limit=limit) for item in node.items]
    total = sum(part.cuts for part in parts)
    if isinstance(node, And) != want:
        return FormSize(min(sum(part.boxes for part in parts), limit), total)
    boxes = 1
    for part in parts:
        boxes = min(boxes * part.boxes, limit)
    return FormSize(boxes, min(total * boxes, max(total, MAX_CUTS)))


# The evaluation.


def evaluation(
    expr: Expr, context: Mapping[str, Any] | None = None, without: Collection[int] = frozenset()
) -> Evaluation:
    """The time that evaluating a tree takes, without those below it whose `id` is given."""
    batch_us = row_ns = 0.0
    pending = [expr]
    while pending:
        node = pending.pop()
        fixed_us, each_ns = _weight(node, context or {})
        batch_us += fixed_us
        row_ns += each_ns
        below = (node.value,) if isinstance(node, In) and _is_listed(node) else children(node)
        pending.extend(each for each in below if id(each) not in without)
    return Evaluation(batch_us, row_ns)


def _weight(node: Expr, context: Mapping[str, Any]) -> tuple[float, float]:
    match node:
        case Literal():
            return 1.5, 0.0
        case ColumnRef() | StructField() | Parameter():
            return 2.0, _by_type(node.type, 0.5, 0.5)
        case Cast():
            return 3.0, _by_type(node.type, 1.0, 1.0)
        case Element():
            return 60.0, 20.0
        case Arithmetic():
            months = node.right.type == YEAR_MONTH
            return 8.0, 45.0 if months else _by_type(node.type, 2.0, 2.0)
        case Compare():
            return 6.0, _by_type(node.left.type, 1.0, 5.0)
        case In():
            return _membership(node)
        case Like():
            return _like(node)
        case Rlike():
            return _regex(regex_size(node.pattern), _characters(node.value))
        case And() | Or():
            return 2.0 * len(node.items), 1.0 * len(node.items)
        case Call():
            return _call(node, context)
    return 3.0, 1.0


def _by_type(kind: pa.DataType, number_ns: float, text_ns: float) -> float:
    if is_decimal(kind) and kind.precision > NARROW_DIGITS:
        return 60.0  # Python's integers
    return text_ns if kind == STRING else number_ns


def _is_listed(node: In) -> bool:
    """Whether the options are literals that are looked up all at once."""
    wide = is_decimal(node.value.type) and node.value.type.precision > NARROW_DIGITS
    return not wide and all(isinstance(option, Literal) for option in node.options)


def _membership(node: In) -> tuple[float, float]:
    count = len(node.options)
    if not _is_listed(node):
        return 8.0 * count, _by_type(node.value.type, 2.0, 6.0) * count
    return 10.0 + 0.2 * count, 15.0 if node.value.type == STRING else 1.0 + math.log2(count + 1)


def _like(node: Like) -> tuple[float, float]:
    pieces = like_pieces(node.pattern, node.escape)
    marks = [piece for piece in pieces if piece in (ANY, ONE)]
    if not marks or (marks == [ANY] and len(pieces) <= 2):
        return 12.0, 4.0
    if marks == [ANY, ANY] and len(pieces) == 3:
        return 12.0, _SEARCH_NS * _characters(node.value)
    return _regex(like_size(node.pattern, node.escape), _characters(node.value))


def _regex(program: int, characters: float) -> tuple[float, float]:
    return 20.0 + _COMPILE_US * program, _SEARCH_NS * characters * (1.0 + program / 4_000)


def _call(node: Call, context: Mapping[str, Any]) -> tuple[float, float]:
    if node.name == "array_contains":
        array = node.args[0]
        listed = context.get(array.name, ()) if isinstance(array, Parameter) else ()
        return 80.0 + 0.2 * len(listed or ()), 20.0
    if node.name == "contains":
        return 20.0, _SEARCH_NS * _characters(node)
    if node.name == "concat":
        return 20.0, 10.0 + _COPY_NS * _characters(node)
    return _CALLS.get(node.name, (25.0, 25.0))


def _characters(node: Expr) -> float:
    """About how long the texts are that an expression gives or, for a truth value, looks through."""
    if isinstance(node, Literal):
        return float(len(str(node.value)))
    if isinstance(node, Call):
        lengths = [_characters(arg) for arg in node.args if arg.type == STRING]
        return sum(lengths) if node.name == "concat" else max(lengths, default=0.0)
    return float(_TEXT_CHARACTERS)


_CALLS: Mapping[str, tuple[float, float]] = {
    "round": (30.0, 12.0),
    "distance": (60.0, 5.0),
    "distance_km": (80.0, 35.0),
    "startswith": (20.0, 4.0),
    "endswith": (20.0, 4.0),
    "coalesce": (10.0, 4.0),
    "if": (10.0, 4.0),
    "isnull": (3.0, 1.0),
    "isnotnull": (3.0, 1.0),
    "isnan": (5.0, 1.0),
    "size": (10.0, 2.0),
    "length": (10.0, 7.0),
}

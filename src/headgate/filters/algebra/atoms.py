"""Which values of one attribute make a predicate TRUE, and which make it FALSE.

Three-valued logic needs both: where NOT stands before a predicate, its rows are those where the predicate is FALSE,
which a NULL never is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pyarrow as pa

from headgate.filters.algebra import intervals
from headgate.filters.algebra.domain import Domain
from headgate.filters.algebra.keys import NAN_KEY, Space, first_at_least, key_of, prefix_end, space_of, successor
from headgate.filters.evaluate import literal_form
from headgate.filters.expr import (
    Call,
    Cast,
    ColumnRef,
    Compare,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Parameter,
    StructField,
    walk,
)
from headgate.filters.kernels.patterns import ANY, like_pieces
from headgate.filters.render import render
from headgate.filters.types import BOOL, DOUBLE, FLOAT, STRING

_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


class Atom(NamedTuple):
    """A predicate on one attribute: its name and tree, where it is TRUE, where it is FALSE."""

    attribute: str
    term: Expr
    true: Domain
    false: Domain

    def domain(self, want: bool) -> Domain:
        """Where the predicate is TRUE, or where it is FALSE."""
        return self.true if want else self.false


def is_constant(node: Expr) -> bool:
    """Whether the expression refers to no column and no context value."""
    if isinstance(node, Literal):
        return True
    return not any(isinstance(found, ColumnRef | Parameter) for found in walk(node))


def term_of(node: Expr) -> Expr | None:
    """The attribute that an operand is, with conversions taken off: a column or a field of one."""
    while isinstance(node, Cast):
        node = node.value
    inner = node
    while isinstance(inner, StructField):
        inner = inner.base
    return node if isinstance(inner, ColumnRef) and space_of(node.type) is not None else None


def atom(node: Expr) -> Atom | None:
    """The atom that a predicate is, None if it is none."""
    match node:
        case ColumnRef() | StructField():
            return _boolean(node)
        case Compare():
            return _compare(node.op, node.left, node.right) or _compare(_FLIPPED[node.op], node.right, node.left)
        case In():
            return _in(node)
        case Like():
            return _like(node)
        case IsNull():
            return _null(node.value)
        case Call(name="isnull"):
            return _null(node.args[0])
        case Call(name="isnotnull"):
            found = _null(node.args[0])
            return found and found._replace(true=found.false, false=found.true)
        case Call(name="isnan"):
            return _nan(node.args[0])
        case Call(name="startswith"):
            return _starts(node)
    return None


def _made(term: Expr, space: Space, true: intervals.Cuts) -> Atom:
    """An atom that is NULL for NULL, FALSE elsewhere."""
    allowed = Domain.of(space.kind, true)
    return Atom(render(term), term, allowed, Domain.everything(space.kind, null=False).minus(allowed))


def _attribute(node: Expr) -> tuple[Expr, Space] | None:
    term = term_of(node)
    if term is None:
        return None
    space = space_of(term.type)
    assert space is not None
    return term, space


def _boolean(node: Expr) -> Atom | None:
    found = _attribute(node)
    return _made(*found, (1,)) if found and node.type == BOOL else None


def _compare(op: str, left: Expr, right: Expr) -> Atom | None:
    found = _attribute(left)
    if found is None or not is_constant(right) or space_of(right.type) is None:
        return None
    term, space = found
    value = literal_form(right)
    if value is None:
        nothing = Domain.nothing(space.kind)
        if op != "<=>":
            return Atom(render(term), term, nothing, nothing)
        return Atom(
            render(term), term, Domain.nothing(space.kind, null=True), Domain.everything(space.kind, null=False)
        )
    made = _made(term, space, _cuts(op, space, left.type, key_of(value, left.type)))
    if op == "<=>":
        return made._replace(false=made.true.complement())
    return made


def _cuts(op: str, space: Space, kind: pa.DataType, key: Any) -> intervals.Cuts:
    at = first_at_least(space, kind, key)
    after = first_at_least(space, kind, successor(key))
    least = space.least
    if op in ("=", "<=>"):
        return _range(at, after)
    if op == "!=":
        return intervals.difference((least,), _range(at, after))
    if op in ("<", "<="):
        return _range(least, at if op == "<" else after)
    start = at if op == ">=" else after
    return () if start == space.end else (start,)


def _range(low: Any, high: Any) -> intervals.Cuts:
    return (low, high) if low < high else ()


def _in(node: In) -> Atom | None:
    found = _attribute(node.value)
    if found is None or not all(is_constant(option) for option in node.options):
        return None
    term, space = found
    kind = node.value.type
    keys = set()
    listed_null = False
    for option in node.options:
        value = literal_form(option)
        if value is None:
            listed_null = True
        else:
            keys.add(key_of(value, kind))
    pairs = sorted((first_at_least(space, kind, key), first_at_least(space, kind, successor(key))) for key in keys)
    cuts: list[Any] = []
    for low, high in pairs:
        if low >= high:
            continue
        if cuts and cuts[-1] == low:
            cuts[-1] = high
        else:
            cuts += [low, high]
    made = _made(term, space, tuple(cuts))
    return made._replace(false=Domain.nothing(space.kind)) if listed_null else made


def _like(node: Like) -> Atom | None:
    found = _attribute(node.value)
    if found is None or found[0].type != STRING:
        return None
    pieces = like_pieces(node.pattern, node.escape)
    marks = [piece for piece in pieces if piece[0] != "="]
    if not marks:
        return _made(*found, (pieces[0][1], successor(pieces[0][1])))
    if marks == [ANY] and pieces[-1] == ANY:
        return _made(*found, _prefix(pieces[0][1] if len(pieces) > 1 else ""))
    return None


def _prefix(prefix: str) -> intervals.Cuts:
    end = prefix_end(prefix)
    return (prefix,) if end is None else (prefix, end)


def _starts(node: Call) -> Atom | None:
    found = _attribute(node.args[0])
    if found is None or not is_constant(node.args[1]):
        return None
    value = literal_form(node.args[1])
    if value is None:
        nothing = Domain.nothing(STRING)
        return Atom(render(found[0]), found[0], nothing, nothing)
    return _made(*found, _prefix(value))


def _null(node: Expr) -> Atom | None:
    found = _attribute(node)
    if found is None:
        return None
    term, space = found
    return Atom(render(term), term, Domain.nothing(space.kind, null=True), Domain.everything(space.kind, null=False))


def _nan(node: Expr) -> Atom | None:
    """`isnan` is FALSE for NULL."""
    found = _attribute(node)
    if found is None or found[1].kind not in (DOUBLE, FLOAT):
        return None
    true = Domain.of(found[1].kind, (NAN_KEY,))
    return Atom(render(found[0]), found[0], true, true.complement())


def implied(node: Expr) -> list[Atom]:
    """Atoms that hold wherever a predicate that is no atom is TRUE: what an index may narrow the search with."""
    if isinstance(node, Like):
        found = _attribute(node.value)
        pieces = like_pieces(node.pattern, node.escape)
        if found and found[0].type == STRING and pieces[0][0] == "=":
            return [_made(*found, _prefix(pieces[0][1]))]
    if isinstance(node, Compare) and isinstance(node.left, Call) and node.left.name == "distance":
        return _within(node.left, node.op, node.right)
    return []


def _within(call: Call, op: str, radius: Expr) -> list[Atom]:
    """The square around a point that `distance(x, y, px, py) < r` stays in, widened by the rounding of the sum."""
    if op not in ("<", "<=") or not is_constant(radius):
        return []
    reach = literal_form(radius)
    found = []
    for one, other in ((call.args[0], call.args[2]), (call.args[1], call.args[3])):
        axis, centre = (one, other) if is_constant(other) else (other, one)
        if reach is None or term_of(axis) is None or not is_constant(centre):
            continue
        middle = literal_form(centre)
        if middle is None or not (math.isfinite(middle) and math.isfinite(reach)):
            continue
        slack = 1e-9 * (abs(middle) + abs(reach)) + 1e-150
        low = _compare(">=", axis, Literal(DOUBLE, float(middle - reach - slack)))
        high = _compare("<=", axis, Literal(DOUBLE, float(middle + reach + slack)))
        if low and high:
            found.append(low._replace(true=low.true.intersect(high.true)))
    return found

"""NOT moves down to single predicates, and into comparisons."""

from __future__ import annotations

from headgate.filters import build
from headgate.filters.expr import And, Compare, Expr, Not, Or

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def push_negation(node: Expr) -> Expr:
    """Move NOT inwards.

    NOT (a AND b)  ->  NOT a OR NOT b
    NOT NOT a      ->  a
    NOT x < 5      ->  x >= 5
    """
    if not isinstance(node, Not):
        return node
    item = node.item
    if isinstance(item, Not):
        return push_negation(item.item) if isinstance(item.item, Not) else item.item
    if isinstance(item, And):
        return build.disjunction(push_negation(Not(each)) for each in item.items)
    if isinstance(item, Or):
        return build.conjunction(push_negation(Not(each)) for each in item.items)
    if isinstance(item, Compare) and item.op in _OPPOSITE:
        return Compare(_OPPOSITE[item.op], item.left, item.right)
    return node

"""Operands stand in the order of their text, so that filters that differ in order alone become one delivery class."""

from __future__ import annotations

from headgate.filters.expr import And, Expr, Or
from headgate.filters.render import render


def order_operands(node: Expr) -> Expr:
    """Sort operands.

    s = 'a' AND n = 1  ->  n = 1 AND s = 'a'
    """
    if isinstance(node, And):
        return And(tuple(sorted(node.items, key=_place)))
    return Or(tuple(sorted(node.items, key=_place))) if isinstance(node, Or) else node


def _place(item: Expr) -> str:
    """The text, with lower bounds before upper ones."""
    return render(item).replace("<", "~")

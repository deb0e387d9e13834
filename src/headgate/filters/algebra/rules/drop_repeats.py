"""The same condition twice is once."""

from __future__ import annotations

from headgate.filters import build
from headgate.filters.expr import And, Expr, Or


def drop_repeats(node: Expr) -> Expr:
    """Keep the first of equal operands.

    a OR b OR a  ->  a OR b
    """
    if isinstance(node, And):
        return build.conjunction(dict.fromkeys(node.items))
    return build.disjunction(dict.fromkeys(node.items)) if isinstance(node, Or) else node

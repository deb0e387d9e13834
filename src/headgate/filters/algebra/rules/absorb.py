"""An operand that repeats another one with more conditions is absorbed."""

from __future__ import annotations

from headgate.filters import build
from headgate.filters.expr import And, Expr, Or

_MOST = 128  # operands that are compared with each other


def absorb(node: Expr) -> Expr:
    """Absorb operands.

    a OR (a AND b)   ->  a
    a AND (a OR b)   ->  a
    """
    if not isinstance(node, And | Or) or len(node.items) > _MOST:
        return node
    inner = Or if isinstance(node, And) else And
    parts = [frozenset(item.items if isinstance(item, inner) else (item,)) for item in node.items]
    kept = [item for item, part in zip(node.items, parts, strict=True) if not any(other < part for other in parts)]
    return build.conjunction(kept) if isinstance(node, And) else build.disjunction(kept)

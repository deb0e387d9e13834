"""TRUE and FALSE disappear from AND and OR, or decide them."""

from __future__ import annotations

from headgate.filters import build
from headgate.filters.expr import FALSE, TRUE, And, Expr, Or


def drop_neutral(node: Expr) -> Expr:
    """Drop what changes nothing.

    a AND TRUE   ->  a
    a AND FALSE  ->  FALSE
    a OR TRUE    ->  TRUE
    """
    if not isinstance(node, And | Or):
        return node
    neutral, deciding = (TRUE, FALSE) if isinstance(node, And) else (FALSE, TRUE)
    if deciding in node.items:
        return deciding
    kept = [item for item in node.items if item != neutral]
    if not kept:
        return neutral
    return build.conjunction(kept) if isinstance(node, And) else build.disjunction(kept)

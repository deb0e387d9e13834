"""Conditions without columns and context values are decided."""

from __future__ import annotations

from headgate.filters.algebra.atoms import is_constant
from headgate.filters.evaluate import literal_form
from headgate.filters.expr import FALSE, TRUE, And, Expr, Or


def fold_constants(node: Expr) -> Expr:
    """Decide a constant condition; NULL selects no row, as FALSE does.

    1 < 2        ->  TRUE
    'a' = NULL   ->  FALSE
    """
    if isinstance(node, And | Or) or not is_constant(node):
        return node
    return TRUE if literal_form(node) else FALSE

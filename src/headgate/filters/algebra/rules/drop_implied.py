"""Operands that another operand makes superfluous go."""

from __future__ import annotations

from headgate.filters import build
from headgate.filters.algebra.normal import normal_form
from headgate.filters.algebra.relate import forms_cover
from headgate.filters.expr import And, Expr, Or
from headgate.filters.filter import Filter

_MOST = 24


def drop_implied(node: Expr) -> Expr:
    """Drop alternatives that another one covers, and conditions that another one implies.

    x > 1 OR (x > 2 AND s = 'a')            ->  x > 1
    (x > 1 OR s = 'a') AND x > 2            ->  x > 2
    """
    if not isinstance(node, And | Or) or len(node.items) > _MOST:
        return node
    forms = [normal_form(Filter.of(item)) for item in node.items]
    kept = list(range(len(forms)))
    for index in range(len(forms)):
        others = [other for other in kept if other != index]
        if isinstance(node, And):
            superfluous = any(forms_cover(forms[index], forms[other]) for other in others)
        else:
            superfluous = any(forms_cover(forms[other], forms[index]) for other in others)
        if superfluous:
            kept.remove(index)
    items = [node.items[index] for index in kept]
    return build.conjunction(items) if isinstance(node, And) else build.disjunction(items)

"""Simplification: the rules of `rules`, applied from the inside out until nothing changes."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.filters import build
from headgate.filters.algebra.rules import RULES, Rule
from headgate.filters.expr import And, Expr, Or
from headgate.filters.filter import Filter

_ROUNDS = 8


def simplify(of: Filter, rules: Sequence[Rule] = RULES) -> Filter:
    """A filter that is TRUE for exactly the same rows, in fewer and ordered words.

    Whether a row that is not selected gives FALSE or NULL is not kept.

    >>> from headgate.filters import parse_filter
    >>> from headgate.model import Schema
    >>> simplify(parse_filter("NOT (n < 3 OR n > 9) AND n != 12 AND TRUE", Schema.of({"n": "int"}))).text
    'n >= 3 AND n <= 9'
    """
    node = of.expr
    for _ in range(_ROUNDS):
        before = node
        for rule in rules:
            node = _apply(node, rule)
        if node == before:
            break
    return of if node == of.expr else Filter.of(node)


def _apply(node: Expr, rule: Rule) -> Expr:
    node = rule(node)
    if not isinstance(node, And | Or):
        return node
    items = [_apply(item, rule) for item in node.items]
    return rule(build.conjunction(items) if isinstance(node, And) else build.disjunction(items))

"""Predicates on one attribute become one range, one list, or nothing."""

from __future__ import annotations

from headgate.filters import build
from headgate.filters.algebra.atoms import Atom, atom
from headgate.filters.algebra.domain import Domain
from headgate.filters.algebra.express import domain_expression
from headgate.filters.expr import And, Expr, Not, Or


def join_ranges(node: Expr) -> Expr:
    """Join the predicates of an AND or an OR that are on the same attribute.

    x > 1 AND x > 3          ->  x > 3
    x > 3 AND x < 1          ->  FALSE
    n = 1 OR n = 2 OR n = 9  ->  n IN (1, 2, 9)
    """
    if not isinstance(node, And | Or):
        return node
    groups: dict[str, list[tuple[Expr, Atom, Domain]]] = {}
    for item in node.items:
        found = atom(item.item if isinstance(item, Not) else item)
        if found is not None:
            groups.setdefault(found.attribute, []).append((item, found, found.domain(not isinstance(item, Not))))
    replaced: dict[Expr, Expr | None] = {}
    for group in groups.values():
        if len(group) > 1:
            replaced.update({item: None for item, _, _ in group})
            replaced[group[0][0]] = _joined(group, both=isinstance(node, And))
    if not replaced:
        return node
    items = [new for item in node.items if (new := replaced.get(item, item)) is not None]
    return build.conjunction(items) if isinstance(node, And) else build.disjunction(items)


def _joined(group: list[tuple[Expr, Atom, Domain]], *, both: bool) -> Expr:
    domains = [known for _, _, known in group]
    domain = Domain.intersection_of(domains) if both else Domain.union_of(domains)
    for item, _, known in group:  # the author's own words where they already say it
        if known == domain:
            return item
    return domain_expression(domain, group[0][1].term)

"""The normal form of a filter: a union of boxes over typed attributes, with what is no box as a residual.

Negations are pushed down to atoms, so each predicate is asked where it is TRUE or where it is FALSE, never both. A
conjunction multiplies boxes; the product is estimated before it is made, and the factors that would pass a limit stay
a residual predicate of the boxes instead. So no form is larger than `cost.form_size` tells from the tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from headgate.filters.algebra.atoms import Atom, atom, implied, is_constant
from headgate.filters.algebra.box import Box, intersection_of, tidy
from headgate.filters.algebra.domain import Domain
from headgate.filters.cost import MAX_BOXES, MAX_CUTS
from headgate.filters.evaluate import literal_form
from headgate.filters.expr import And, Expr, Not, Or
from headgate.filters.filter import Filter

DEFAULT_BOXES = MAX_BOXES


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A filter as boxes.

    Every matched row lies in a box. When `exact`, every row in a box is matched; otherwise rows in boxes with a
    residual have to be checked with `residual`, which is the whole filter. `attributes` gives the tree of each name
    that boxes use: a column, or a field of one.
    """

    filter: Filter
    attributes: Mapping[str, Expr]
    boxes: tuple[Box, ...]

    @property
    def exact(self) -> bool:
        """Whether the boxes alone decide."""
        return all(box.exact for box in self.boxes)

    @property
    def residual(self) -> Filter | None:
        """The predicate to check again, None when the boxes decide."""
        return None if self.exact else self.filter

    @property
    def is_empty(self) -> bool:
        """Whether no row can match."""
        return not self.boxes

    def __reduce__(self) -> tuple[object, ...]:
        return NormalForm, (self.filter, dict(self.attributes), self.boxes)


def normal_form(of: Filter, limit: int = DEFAULT_BOXES) -> NormalForm:
    r"""The normal form of a filter with at most `limit` boxes.

    >>> from headgate.filters import parse_filter
    >>> from headgate.model import Schema
    >>> form = normal_form(parse_filter("t > 3 AND NOT (t >= 7 OR s = 'a')", Schema.of({"t": "int", "s": "string"})))
    >>> form.exact, {name: domain.bounds() for name, domain in form.boxes[0].domains.items()}
    (True, {'t': ((4, 6),), 's': (('', 'a'), ('a\x00', None))})
    """
    return _remembered(of, limit)


@lru_cache(maxsize=4_096)
def _remembered(of: Filter, limit: int) -> NormalForm:
    """A filter and its form never change, and one filter is compared with many."""
    return build_form(of, limit)


def build_form(of: Filter, limit: int = DEFAULT_BOXES) -> NormalForm:
    """`normal_form`, made anew."""
    builder = _Builder(limit)
    boxes = tidy(builder.boxes(of.expr, want=True))
    return NormalForm(of, MappingProxyType(builder.attributes), boxes)


class _Builder:
    """Builds boxes and remembers the attributes and atoms that it met."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.attributes: dict[str, Expr] = {}
        self.atoms: dict[Expr, Atom | None] = {}

    def boxes(self, node: Expr, *, want: bool) -> list[Box]:
        """Boxes of the rows where the node is TRUE, or FALSE."""
        while isinstance(node, Not):
            node, want = node.item, not want
        if isinstance(node, And | Or):
            if isinstance(node, And) == want:
                return self._product(node.items, want)
            return self._sum(node, want)
        if is_constant(node):
            return [Box()] if literal_form(node) is want else []
        found = self._atom(node)
        if found is None:
            return [self._residual(node, want)]
        domain = found.domain(want)
        return [] if domain.is_empty else [Box({found.attribute: domain})]

    def _atom(self, node: Expr) -> Atom | None:
        if node not in self.atoms:
            found = self.atoms[node] = atom(node)
            if found is not None:
                self.attributes.setdefault(found.attribute, found.term)
        return self.atoms[node]

    def _residual(self, node: Expr, want: bool) -> Box:
        """An unconstrained box that is checked again, narrowed by what the predicate implies."""
        box = Box({}, (node if want else Not(node),))
        for found in implied(node) if want else []:
            self.attributes.setdefault(found.attribute, found.term)
            box = box.narrowed(found.attribute, found.true)
        return box

    def _sum(self, node: And | Or, want: bool) -> list[Box]:
        """Alternatives: atoms of one attribute are united first, so that long lists of values stay one box."""
        single: dict[str, list[Domain]] = {}
        found: list[Box] = []
        for item in node.items:
            boxes = self.boxes(item, want=want)
            if len(boxes) == 1 and len(boxes[0].domains) == 1 and boxes[0].exact:
                ((name, domain),) = boxes[0].domains.items()
                single.setdefault(name, []).append(domain)
            elif len(found) <= self.limit:
                found.extend(boxes)
        if len(found) + len(single) > self.limit:
            return [Box({}, (node if want else Not(node),))]
        return found + [Box({name: Domain.union_of(domains)}) for name, domains in single.items()]

    def _product(self, items: Sequence[Expr], want: bool) -> list[Box]:
        """Combinations, small factors first; a factor that would pass the limit becomes a residual."""
        factors = [(self.boxes(item, want=want), item) for item in items]
        if not all(boxes for boxes, _ in factors):
            return []
        alone = [boxes[0] for boxes, _ in factors if len(boxes) == 1]
        found = [box for box in [intersection_of(alone) if alone else Box()] if not box.is_empty]
        extra: list[Expr] = []
        for boxes, item in sorted((pair for pair in factors if len(pair[0]) > 1), key=lambda pair: len(pair[0])):
            if len(found) * len(boxes) > self.limit or _product_cuts(found, boxes) > MAX_CUTS:
                extra.append(item if want else Not(item))
            else:
                found = [one.intersect(other) for one in found for other in boxes]
            found = [box for box in found if not box.is_empty]
        return [intersection_of([box, Box({}, tuple(extra))]) for box in found] if extra else found


def _product_cuts(one: Sequence[Box], other: Sequence[Box]) -> int:
    """The most cuts that the intersections of all pairs of boxes can have, told before they are made."""
    return len(other) * sum(box.cuts for box in one) + len(one) * sum(box.cuts for box in other)

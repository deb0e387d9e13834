"""Relations between filters: covering, intersection, exact and imperfect union.

Built on normal forms. A yes of `covers` and a no of `intersects` are always right; both are complete where the forms
are exact, within the budget of pieces that a difference of boxes may take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.filters.algebra.box import Box, subtract, tidy
from headgate.filters.algebra.domain import Domain
from headgate.filters.algebra.express import boxes_expression
from headgate.filters.algebra.normal import DEFAULT_BOXES, NormalForm, normal_form
from headgate.filters.expr import And, Expr, Literal, Or
from headgate.filters.filter import Filter
from headgate.filters.types import BOOL

PIECES = 1_000
"""Boxes that one comparison may take apart, which takes about 10 ms: a filter can be written to need any number."""


def covers(
    one: Filter,
    other: Filter,
    *,
    select: Iterable[str] | None = None,
    other_select: Iterable[str] | None = None,
) -> bool:
    """Whether every row of `other` is a row of `one`, with all the columns that `other` keeps.

    This is the QASD paper's applicability (section 2.2), seen from the wider filter. A projection of None keeps every
    column.

    >>> from headgate.filters import parse_filter
    >>> from headgate.model import Schema
    >>> wide, narrow = (parse_filter(text, Schema.of({"t": "double"})) for text in ("t > 1", "t BETWEEN 2 AND 3"))
    >>> covers(wide, narrow), covers(narrow, wide), covers(wide, narrow, select=["t"], other_select=["t", "u"])
    (True, False, False)
    """
    if not columns_cover(select, other_select):
        return False
    return one == other or forms_cover(normal_form(one), normal_form(other))


def columns_cover(select: Iterable[str] | None, other: Iterable[str] | None) -> bool:
    """Whether a projection keeps every column of the other; None keeps all."""
    return select is None or (other is not None and set(other) <= set(select))


def forms_cover(one: NormalForm, other: NormalForm) -> bool:
    """`covers` on normal forms that are already known."""
    budget = PIECES
    for box in other.boxes:
        made = _cover_pieces(box, one.boxes, budget)
        if made is None:
            return False
        budget -= made
    return True


def _cover_pieces(box: Box, by: Sequence[Box], budget: int) -> int | None:
    """How many pieces it took to see that the others cover a box; None when they do not, or it takes too many."""
    usable = [cover for cover in by if set(cover.residual) <= set(box.residual)]
    if any(box.within(cover) for cover in usable):
        return 1
    if not all(_holds(usable, corner) for corner in _corners(box, usable)):
        return None
    rest, made = [box], 1
    for cover in usable:
        left = subtract(rest, cover, budget - made)
        if not left:
            return made if left is not None else None
        made += len(left)
        rest = left
    return None


def _corners(box: Box, by: Sequence[Box]) -> Iterator[dict[str, Any]]:
    """Two rows of a box: that of the least and that of the greatest keys, NULL where nothing else is allowed."""
    domains = {name: Domain.everything(domain.kind) for cover in by for name, domain in cover.domains.items()}
    domains.update(box.domains)
    for least in (True, False):
        yield {name: domain.end_key(least=least) for name, domain in domains.items()}


def _holds(boxes: Sequence[Box], row: Mapping[str, Any]) -> bool:
    return any(all(domain.holds(row[name]) for name, domain in box.domains.items()) for box in boxes)


def intersects(one: Filter, other: Filter) -> bool:
    """Whether some row can match both; a no is certain, a yes only where both normal forms are exact."""
    return forms_intersect(normal_form(one), normal_form(other))


def forms_intersect(one: NormalForm, other: NormalForm) -> bool:
    """`intersects` on normal forms that are already known."""
    return any(not first.intersect(second).is_empty for first in one.boxes for second in other.boxes)


def intersection(one: Filter, other: Filter) -> Filter:
    """The filter of exactly the rows that both filters match; where one covers the other it is the narrower one.

    >>> from headgate.filters import parse_filter
    >>> from headgate.model import Schema
    >>> narrow, wide, other, high = (
    ...     parse_filter(text, Schema.of({"n": "int"})) for text in ("n = 3", "n < 5", "n % 2 = 1", "n > 7")
    ... )
    >>> intersection(narrow, wide).text, intersection(wide, other).text, intersection(wide, high).text
    ('n = 3', 'n < 5 AND n % 2 = 1', 'FALSE')
    """
    form, its = normal_form(one), normal_form(other)
    if forms_cover(its, form):
        return one
    if forms_cover(form, its):
        return other
    if not forms_intersect(form, its):
        return Filter.of(Literal(BOOL, False))
    parts: dict[Expr, None] = {}
    for expr in (one.expr, other.expr):
        parts.update(dict.fromkeys(expr.items if isinstance(expr, And) else (expr,)))
    return Filter.of(And(tuple(parts)))


def merge(filters: Sequence[Filter]) -> Filter:
    """The filter of exactly the rows that any of the filters matches.

    >>> from headgate.filters import parse_filter
    >>> from headgate.model import Schema
    >>> merge([parse_filter(text, Schema.of({"n": "int"})) for text in ("n < 3", "n IN (3, 4)", "n = 9")]).text
    'n <= 4 OR n = 9'
    """
    return merge_forms([normal_form(each) for each in dict.fromkeys(filters)])


def merge_forms(forms: Sequence[NormalForm]) -> Filter:
    """`merge` on normal forms that are already known."""
    kept = _uncovered(forms)
    if len(kept) == 1:
        return kept[0].filter
    if all(form.exact for form in kept):
        boxes = tidy(box for form in kept for box in form.boxes)
        return Filter.of(boxes_expression(boxes, _attributes(kept)))
    parts: dict[Expr, None] = {}
    for form in kept:
        expr = form.filter.expr
        parts.update(dict.fromkeys(expr.items if isinstance(expr, Or) else (expr,)))
    return Filter.of(Or(tuple(parts)) if len(parts) > 1 else next(iter(parts)))


def _uncovered(forms: Sequence[NormalForm]) -> list[NormalForm]:
    """The forms that no other one covers."""
    if not forms:
        raise ValueError("there is nothing to merge")
    kept: list[NormalForm] = []
    for form in forms:
        if any(forms_cover(known, form) for known in kept):
            continue
        kept = [known for known in kept if not forms_cover(form, known)]
        kept.append(form)
    return kept


def _attributes(forms: Iterable[NormalForm]) -> dict[str, Expr]:
    return {name: term for form in forms for name, term in form.attributes.items()}


class Measure(Protocol):
    """How much of a stream lies in a domain: a fraction of the rows from 0 to 1, attributes taken as independent."""

    def mass(self, attribute: str, domain: Domain) -> float:
        """The fraction of rows whose attribute lies in the domain."""
        ...


@dataclass(frozen=True, slots=True)
class Cover:
    """A filter that matches at least what was to be merged: its volume and how much of that is extra."""

    filter: Filter
    volume: float
    extra: float


def merge_cover(filters: Sequence[Filter], boxes: int, measure: Measure) -> Cover:
    """A filter of at most `boxes` boxes that covers all of the filters, and the extra volume that this costs.

    Boxes are joined greedily, the pair that adds the least volume first. The extra is exact under the measure where the
    normal forms are exact; where they are not it is that of the boxes.
    """
    forms = [normal_form(each, max(boxes, DEFAULT_BOXES)) for each in dict.fromkeys(filters)]
    found = list(tidy(box for form in forms for box in form.boxes))
    exact = volume(found, measure)
    while len(found) > max(1, boxes):
        found = list(tidy(_join(found, measure)))
    expression = boxes_expression(found, _attributes(forms))
    total = volume(found, measure)
    return Cover(Filter.of(expression), total, max(0.0, total - exact))


def _join(boxes: list[Box], measure: Measure) -> list[Box]:
    best: tuple[float, int, int] | None = None
    masses = [box_volume(box, measure) for box in boxes]
    for i in range(len(boxes)):
        for j in range(i + 1, len(boxes)):
            extra = box_volume(boxes[i].hull(boxes[j]), measure) - masses[i] - masses[j]
            if best is None or extra < best[0]:
                best = (extra, i, j)
    assert best is not None
    _, i, j = best
    return [*(box for index, box in enumerate(boxes) if index not in (i, j)), boxes[i].hull(boxes[j])]


def box_volume(box: Box, measure: Measure) -> float:
    """The fraction of rows in a box."""
    found = 1.0
    for name, domain in box.domains.items():
        found *= measure.mass(name, domain)
    return found


def volume(boxes: Sequence[Box], measure: Measure) -> float:
    """The fraction of rows in any of the boxes: overlaps count once.

    When taking the overlaps apart needs more than the budget of pieces, the plain sum, an upper bound, is given.
    """
    total = 0.0
    for index, box in enumerate(boxes):
        rest: list[Box] | None = [Box(box.domains)]
        for before in boxes[:index]:
            rest = subtract(rest, before, PIECES) if rest is not None else None
        total += sum(box_volume(piece, measure) for piece in ([box] if rest is None else rest))
    return min(1.0, total)

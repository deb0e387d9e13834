"""Boxes back as expressions, so that what the algebra computes is a filter again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.filters import build
from headgate.filters.algebra import intervals
from headgate.filters.algebra.box import Box
from headgate.filters.algebra.domain import Domain
from headgate.filters.algebra.keys import NAN_KEY, key_of, prefix_end, space_of, successor, value_of
from headgate.filters.expr import FALSE, TRUE, Call, Expr, IsNull, Literal, Not
from headgate.filters.types import BOOL, DOUBLE, FLOAT, STRING, is_decimal

_INFINITY = NAN_KEY - 1
_LISTED = 16  # values that are written as a list rather than as ranges


def boxes_expression(boxes: Sequence[Box], attributes: Mapping[str, Expr]) -> Expr:
    """The condition that holds for the rows of any of the boxes."""
    parts = [_box(box, attributes) for box in boxes]
    if not parts:
        return FALSE
    return TRUE if TRUE in parts else build.disjunction(dict.fromkeys(parts))


def _box(box: Box, attributes: Mapping[str, Expr]) -> Expr:
    parts = [domain_expression(box.domains[name], attributes[name]) for name in sorted(box.domains)]
    parts += box.residual
    return build.conjunction(parts) if parts else TRUE


def domain_expression(domain: Domain, term: Expr) -> Expr:
    """The condition that the attribute lies in the domain.

    >>> from headgate.filters.expr import ColumnRef
    >>> from headgate.filters.render import render
    >>> render(domain_expression(Domain.of(BOOL, (1,), null=True), ColumnRef(BOOL, "flag")))
    'flag OR flag IS NULL'
    """
    missing = IsNull(term)
    if domain.is_everything:
        return TRUE
    if domain.is_empty:
        return FALSE
    if not domain.cuts:
        return missing
    if Domain(domain.kind, domain.cuts, True).is_everything:
        return Not(missing)
    found = _values(domain, term)
    return build.disjunction([found, missing]) if domain.null else found


def _values(domain: Domain, term: Expr) -> Expr:
    if domain.kind == BOOL:
        return term if domain.cuts[0] == 1 else Not(term)
    points = domain.points()
    if points is not None and _writable(points, domain):
        return _listed(points, term, negated=False)
    points = _few(domain)
    if points is not None:
        return _listed(points, term, negated=False)
    outside = Domain.everything(domain.kind, null=False).minus(domain)
    points = outside.points()
    if points is not None and _writable(points, domain):
        return _listed(points, term, negated=True)
    singles: list[Any] = []
    parts: list[Expr] = []
    for low, high in intervals.ranges(domain.cuts):
        if high is not None and high == successor(low) and _writable((value_of(low, domain.kind),), domain):
            singles.append(value_of(low, domain.kind))
        else:
            parts.append(_range(low, high, domain, term))
    if singles:
        parts.append(_listed(tuple(singles), term, negated=False))
    return build.disjunction(parts)


def _few(domain: Domain) -> tuple[Any, ...] | None:
    """All values of a discrete domain if they are few enough to be listed."""
    if domain.kind in (DOUBLE, FLOAT, STRING):
        return None
    found: list[Any] = []
    for low, high in intervals.ranges(domain.cuts):
        if high is None or high - low > _LISTED - len(found):
            return None
        found += range(low, high)
    return tuple(found) if len(domain.cuts) > 2 or len(found) == 2 else None


def _literal(value: Any, domain: Domain) -> Literal:
    if is_decimal(domain.kind):
        return _decimal(value, domain.kind.scale)
    return Literal(DOUBLE if domain.kind == FLOAT else domain.kind, value)


def _decimal(value: int, scale: int) -> Literal:
    """A decimal in as few digits as its text has, so that the text means the same literal."""
    while scale and value % 10 == 0:
        value, scale = value // 10, scale - 1
    return Literal(pa.decimal128(max(1, scale, len(str(abs(value)))), scale), value)


def _writable(points: tuple[Any, ...], domain: Domain) -> bool:
    """Whether the values have literals: infinities and NaN have none."""
    return domain.kind not in (DOUBLE, FLOAT) or all(abs(key_of(point, DOUBLE)) < _INFINITY for point in points)


def _listed(points: tuple[Any, ...], term: Expr, *, negated: bool) -> Expr:
    kind = Domain.nothing(term.type)
    if len(points) == 1:
        return build.compare("!=" if negated else "=", term, _literal(points[0], kind))
    found = build.membership(term, [_literal(point, kind) for point in points])
    return Not(found) if negated else found


def _range(low: Any, high: Any, domain: Domain, term: Expr) -> Expr:
    if domain.kind == STRING:
        return _text_range(low, high, term)
    parts: list[Expr] = []
    space = space_of(domain.kind)
    assert space is not None
    doubles = domain.kind in (DOUBLE, FLOAT)
    if doubles and low >= NAN_KEY:
        return Call(BOOL, "isnan", (build.cast(term, DOUBLE),))
    if low != space.least:
        inclusive = not doubles or (low < _INFINITY and _shorter(low, low - 1))
        parts.append(_bound(">=" if inclusive else ">", low if inclusive else low - 1, domain, term))
    if doubles and high == NAN_KEY:
        parts += [] if parts else [Not(IsNull(term))]  # isnan is FALSE for NULL
        parts.append(Not(Call(BOOL, "isnan", (build.cast(term, DOUBLE),))))
    elif high is not None:
        inclusive = not doubles or (abs(high - 1) < _INFINITY and _shorter(high - 1, high))
        parts.append(_bound("<=" if inclusive else "<", high - 1 if inclusive else high, domain, term))
    return build.conjunction(parts)


def _shorter(one: int, other: int) -> bool:
    if abs(other) >= _INFINITY:
        return True
    return len(repr(value_of(one, DOUBLE))) <= len(repr(value_of(other, DOUBLE)))


def _bound(op: str, key: int, domain: Domain, term: Expr) -> Expr:
    return build.compare(op, term, _literal(value_of(key, domain.kind), domain))


def _text_range(low: str, high: str | None, term: Expr) -> Expr:
    if low and prefix_end(low) == high:
        escaped = "".join("\\" + one if one in "%_\\" else one for one in low)
        return build.like(term, Literal(STRING, escaped + "%"))
    parts: list[Expr] = []
    if low:
        op, text = (">", low[:-1]) if low.endswith("\0") else (">=", low)
        parts.append(build.compare(op, term, Literal(STRING, text)))
    if high is not None:
        op, text = ("<=", high[:-1]) if high.endswith("\0") else ("<", high)
        parts.append(build.compare(op, term, Literal(STRING, text)))
    return build.conjunction(parts)

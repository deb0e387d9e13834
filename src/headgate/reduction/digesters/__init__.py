"""The digesters, one a file, and how one is found again from the label that a digest carries."""

from __future__ import annotations

from headgate.reduction.digesters.base import Digester, Parts, joined
from headgate.reduction.digesters.box import BoundingBox
from headgate.reduction.digesters.count import Count
from headgate.reduction.digesters.distinct import Distinct
from headgate.reduction.digesters.max import Max
from headgate.reduction.digesters.mean import Mean
from headgate.reduction.digesters.min import Min
from headgate.reduction.digesters.quantiles import Quantiles
from headgate.reduction.digesters.std import Std
from headgate.reduction.digesters.sum import Sum
from headgate.reduction.digesters.time_range import TimeRange

DIGESTERS: tuple[type[Digester], ...] = (Count, Min, Max, Sum, Mean, Std, Distinct, Quantiles, TimeRange, BoundingBox)


def by_label(label: str) -> Digester:
    """The digester that a label names.

    >>> by_label("box(x, y)").columns
    ('x', 'y')
    """
    name, _, rest = label.partition("(")
    inside = rest.removesuffix(")")
    for kind in DIGESTERS:
        if kind.name == name:
            return kind(tuple(inside.split(", ")) if kind is BoundingBox else (inside,) if inside else ())
    raise ValueError(f"no digester is called {label!r}")


__all__ = ["DIGESTERS", "Digester", "Parts", "by_label", "joined"]
